"""A seeded generator of payment streams with planted fraud, for the demo, the tests and the benchmarks.

The story in four steps, one module each: `background` draws everyday payments, `fraud` plants cases whose
truth is known, `disorder` decides in which order the lines arrive, `writer` puts them into files, the truth
beside them. `recall` compares alerts with the truth. Nothing here knows rules or the engine.
"""

from buckets.generator.settings import GeneratorSettings
from buckets.generator.stream import Stream, WrittenStream, generate, write
from buckets.generator.transactions import PATTERNS, PlantedCase

__all__ = ["PATTERNS", "GeneratorSettings", "PlantedCase", "Stream", "WrittenStream", "generate", "write"]
