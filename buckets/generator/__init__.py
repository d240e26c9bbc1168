"""A seeded generator of payment streams with planted fraud, for the demo, the tests and the benchmarks.

`transactions` draws everyday payments and compares alerts with the truth, `fraud` plants cases whose truth is known,
`stream` decides in which order the lines arrive, and writes them into files. Nothing here knows rules or the engine.
"""

from buckets.generator.settings import GeneratorSettings
from buckets.generator.stream import Stream, WrittenStream, generate, write
from buckets.generator.transactions import PATTERNS, PlantedCase

__all__ = ["PATTERNS", "GeneratorSettings", "PlantedCase", "Stream", "WrittenStream", "generate", "write"]
