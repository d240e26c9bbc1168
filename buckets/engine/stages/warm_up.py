"""Compiles the kernels ahead of the first batch: `python -m buckets.engine.stages.warm_up`.

Later processes load them from disk.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import pyarrow as pa
from numba.core import event

from buckets.byte_strings import ByteStrings
from buckets.config.engine import EngineSettings
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.engine.storage.arena import PENDING, Arena
from buckets.events.arrivals import POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.events.schema import EventSchema
from buckets.outputs import columns
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set

_SCHEMA = EventSchema.model_validate(
    {"event_id": "id", "event_time": "t", "attributes": {"k": "string"}, "measures": {"v": {"scale": 2}}}
)
_RULE = Rule.model_validate(
    {
        "rule_id": "warm-up",
        "group_by": ["k"],
        "aggregate": {"function": "sum", "measure": "v"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "1"},
    }
)
_DECORATED = re.compile(rb"^@(?:compiled|leaf|inlined|allocating)$", re.MULTILINE)
_EVENTS = 300  # So many that a timeline gets pages, and the second batch reads some
_PAUSE_MS = 3 * 3_600_000  # Longer than the horizon


def _arrivals(first: int, time_ms: int, keys: int) -> pa.RecordBatch:
    numbers = range(first, first + _EVENTS)
    return pa.record_batch(
        {
            SOURCE: pa.array(["file"] * _EVENTS),
            SOURCE_ORDER: pa.array([0] * _EVENTS),
            POSITION: pa.array(numbers),
            field_column(0): pa.array([f"e{number}" for number in numbers]),
            field_column(1): pa.array([str(time_ms + number) for number in numbers]),
            field_column(2): pa.array([f"{keys} {number % keys}" for number in numbers]),
            field_column(3): pa.array(["1.00"] * _EVENTS),
        }
    )


def warm_up() -> None:
    """Run batches of events through both stages, on the types that production uses, and fill an arena.

    The first two batches have one key, which is visited in the third batch and evicted in the fourth.
    """
    rule_set, engine = first_rule_set([_RULE]), EngineSettings(shards=1)
    job = InMemoryJob(Scorer(_SCHEMA, engine, evaluations=True))
    decoder = OutputDecoder(rule_set, _SCHEMA, engine)
    for batch, keys in enumerate((1, 1, _EVENTS, _EVENTS)):
        time_ms = max(0, batch - 1) * _PAUSE_MS
        results = job.score_batch([_arrivals(batch * _EVENTS, time_ms, keys)], rule_set)
        decoder.table(columns.EVALUATIONS, results.payloads[columns.EVALUATIONS])
    # An arena grows, is copied, and names keys as a store does that holds several maps.
    arena, names = Arena(), ByteStrings.of([f"k{number}".encode() for number in range(_EVENTS)])
    arena.put(names, names, PENDING)
    arena.compact()
    names.take(arena.find(names)).differs_from(names)
    names.with_prefix(b"k")


def _texts(folder: Traversable) -> Iterator[bytes]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _texts(each)
        elif each.name.endswith(".py"):
            yield each.read_bytes()


class _Progress(event.Listener):
    """Prints how many of this package's functions have been compiled, and of how many."""

    def __init__(self) -> None:
        self._names = set[str]()
        self._all = sum(len(_DECORATED.findall(text)) for text in _texts(files("buckets")))

    def on_start(self, event: event.Event) -> None:
        pass

    def on_end(self, event: event.Event) -> None:
        function: Any = event.data["dispatcher"].py_func
        if function.__module__.startswith("buckets."):
            self._names.add(f"{function.__module__}.{function.__qualname__}")
            done = min(len(self._names), self._all)
            print(f"compiling: {done} of {self._all} functions, the largest last", flush=True)  # noqa: T201


if __name__ == "__main__":
    event.register("numba:compile", _Progress())
    warm_up()
