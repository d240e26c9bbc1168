"""What a job tells of the times of its batches: once, and only what is wrong with them."""

import pyarrow as pa
import pytest

from buckets.archive.arrived_rows import arrivals_of
from buckets.config.engine import EngineSettings
from buckets.engine.stages.in_memory import InMemoryJob
from buckets.engine.stages.shard import Scorer
from buckets.events.arrivals import convert
from buckets.events.parquet_rows import plain_table_arrivals
from buckets.events.schema import EventSchema
from buckets.monitor.words import TimeNotes
from buckets.rules.rule_set import first_rule_set
from tests.core.archived_job import archived

SECONDS = [1_763_000_000, 1_763_000_300]
AUTUMN = ["25/10/2026 02:30", "25/10/2026 03:30"]
SPRING = ["29/03/2026 02:30", "29/03/2026 03:30"]


def schema_of(**event_time: object) -> EventSchema:
    return EventSchema.model_validate({"event_id": "id", "event_time": {"field": "at"} | event_time})


def arrivals(times: list, schema: EventSchema) -> list[pa.RecordBatch]:
    table = pa.table({"id": [f"e{number}" for number in range(len(times))], "at": times})
    return list(plain_table_arrivals(table, schema))


def told(batches: list[list], schema: EventSchema) -> list[str]:
    lines: list[str] = []
    notes, job = TimeNotes(schema.event_time, lines.append), InMemoryJob(Scorer(schema, EngineSettings(), False))
    for times in batches:
        notes.take(job.score_batch(arrivals(times, schema), first_rule_set([])).account)
    return lines


@pytest.mark.parametrize(
    ("unit", "factor"), [("ms", 1), ("s", 1000), ("us", 1), ("ns", 1000), ("s", 10**9), ("ms", 10**6)]
)
def test_a_unit_that_cannot_be_right_is_told_of_the_first_batch(unit, factor, as_worded):
    lines = told([[at * factor for at in SECONDS]] * 3, schema_of(unit=unit))
    assert as_worded("\n".join(lines))
    assert len(lines) == 1


def test_earliest_says_that_times_in_1970_are_right():
    assert told([SECONDS], schema_of(earliest="1970-01-01")) == []


@pytest.mark.parametrize("times", [[0, 1000], [1_763_000_000_000], [1_763_000_000, 1_763_000_000_000], [-5]])
def test_times_that_may_be_right_are_not_told_of(times):
    assert told([times], schema_of()) == []


def test_clocks_that_change_are_told_of_once_each(as_worded):
    berlin = schema_of(format="%d/%m/%Y %H:%M", zone="Europe/Berlin")
    assert as_worded("\n".join(told([SPRING, SPRING, AUTUMN, AUTUMN], berlin)))
    assert as_worded("\n".join(told([SPRING, AUTUMN], schema_of(format="%d/%m/%Y %H:%M"))))
    assert told([SPRING, AUTUMN], schema_of(format="%d/%m/%Y %H:%M", zone="UTC")) == []


@pytest.mark.parametrize("times", [AUTUMN, SPRING])
def test_the_archive_keeps_instants_that_no_zone_moves_again(times):
    """What is read again of it, for replays, backtests and backfills, has the same times by the same event schema."""
    berlin = schema_of(format="%d/%m/%Y %H:%M", zone="Europe/Berlin")
    for rows in arrivals(times, berlin):
        before = convert(rows, berlin, frozenset())
        (again,) = arrivals_of(archived(rows, berlin, 0), berlin)
        after = convert(again, berlin, frozenset())
        assert (after.every.times_ms.tolist(), after.faults) == (before.every.times_ms.tolist(), {})
