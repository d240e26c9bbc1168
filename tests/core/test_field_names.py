"""What arrived before fields were renamed is read under the names that they have now, and under any that they had."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from buckets.archive.history import History
from buckets.delta.whole_table import quoted_column
from buckets.events.schema import EventSchema
from buckets.history.backtest.backtest import Backtest, archive_pieces
from buckets.history.features import FeatureRun
from buckets.history.scoring import score_archive
from buckets.rules.renaming import renamed_rules
from tests.core.backfilled_job import BackfilledJob
from tests.core.examples import SCHEMA, with_new_names
from tests.core.test_feature_run import RULES, rows

THERE = {"payer": "zz payer", "kind": "a kind", "amount": 'in "cents"', "id": "key", "at": "time"}
BACK = {new: old for old, new in THERE.items()}
ON = {new: f"{new} 2" for new in THERE.values()}
EVENTS = rows()


def job_of(folder: Path, *renamings: dict[str, str]) -> tuple[BackfilledJob, dict[str, str]]:
    """A job that has taken in events in six batches, with new names after every other one; and its names."""
    job, names = BackfilledJob(folder, SCHEMA, random.Random(1), shards=3, allowed_lateness="1h"), dict[str, str]()
    job.take(RULES)
    for number, start in enumerate(range(0, 61, 11)):
        if number and number % 2 == 0 and number // 2 <= len(renamings):
            now = renamings[number // 2 - 1]
            job.rename(now)
            names = {old: now.get(names.get(old, old), old) for old in THERE}
        found = [{names.get(name, name): value for name, value in row.items()} for row in EVENTS[start : start + 11]]
        job.batch(found)
    return job, names


def old_names(table: pa.Table, names: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of a table without names that fields have had or have now; a null counts as no value."""
    back = {new: old for old, new in names.items()}
    rows_of = table.to_pylist()
    return [{back.get(name, name): value for name, value in row.items() if value is not None} for row in rows_of]


@pytest.fixture(scope="module")
def never(tmp_path_factory) -> BackfilledJob:
    return job_of(tmp_path_factory.mktemp("never"))[0]


RENAMINGS = {"renamed": (THERE,), "and back": (THERE, BACK), "twice": (THERE, ON)}


@pytest.fixture(scope="module", params=RENAMINGS.values(), ids=RENAMINGS)
def renamed(request, tmp_path_factory) -> tuple[BackfilledJob, dict[str, str]]:
    return job_of(tmp_path_factory.mktemp("renamed"), *request.param)


def test_all_that_arrived_is_read_and_asked_for_under_the_names_of_now(never, renamed):
    job, names = renamed
    archive = job.archive.under(job.schema.new_names)
    expected = pa.concat_tables(never.archive.tables()).to_pylist()
    expected = [{name: value for name, value in row.items() if value is not None} for row in expected]
    assert old_names(pa.concat_tables(archive.tables()), names) == expected
    assert old_names(archive.query("select * from archive order by _arrival"), names) == expected
    payer = quoted_column(names.get("payer", "payer"))
    asked = [
        each.query(f"select _arrival from archive where {name} = 'p1' order by _arrival")
        for each, name in ((archive, payer), (never.archive, "payer"))
    ]
    assert asked[0].equals(asked[1])


def test_under_the_names_of_an_earlier_batch_all_is_the_same(never, renamed):
    job, _ = renamed
    for batch_id, names in ((0, {}), (3, THERE)):
        then = job.archive.under(job.schema.names_in(job.recorded.terms(batch_id).event_schema))
        read = [quoted_column(names.get(name, name)) for name in ("id", "payer", "amount")]
        found = then.query(f"select {', '.join(read)} from archive order by _arrival")
        expected = never.archive.query("select id, payer, amount from archive order by _arrival")
        assert found.rename_columns(expected.column_names).to_pylist() == expected.to_pylist()


def test_features_and_what_a_backtest_scores_are_those_of_a_job_whose_fields_were_never_renamed(never, renamed):
    job, names = renamed
    found = []
    for each, named in ((never, {}), (job, names)):
        history = History(None, each.archive, each.recorded)
        rule_set = renamed_rules(never.pipeline.rule_set, named)
        run = FeatureRun(rule_set, each.schema, each.settings, None, flags=True)
        found.append(old_names(pa.concat_tables(run.tables_of(history, score_archive)), named))
        asked = Backtest(rules=rule_set.rules, schema=each.schema, engine=each.settings, lists={})
        pieces = archive_pieces(history, asked)
        rows = [pieces.read(number).rows for number in range(len(pieces))]
        found.append(old_names(pa.concat_tables(rows), named))
    assert found[:2] == found[2:]


def test_what_came_out_is_what_comes_out_without_new_names(never, renamed):
    job, _ = renamed
    kept = ("rule_id", "event_id", "fired", "value", "warm", "exact", "position")
    for output in ("evaluations", "late_events", "duplicates"):
        both = [[[row.get(name) for name in kept] for row in each.pipeline.output(output)] for each in (never, job)]
        assert both[0] == both[1]
    groups = [{group.group_id for group in each.pipeline.rule_set.groups} for each in (never, job)]
    assert groups[0] == groups[1]


def test_a_name_stands_for_that_of_any_time():
    first = EventSchema.model_validate(SCHEMA.model_dump() | {"attributes": {"a": "string", "x": "string"}})
    second = with_new_names(first, {"a": "b"})
    third = with_new_names(second, {"b": "c", "x": "y"})
    assert third.aliases == {"c": ("b", "a"), "y": ("x",)}
    assert third.names_in(third) == {"b": "c", "a": "c", "x": "y"}
    assert third.names_in(second) == {"c": "b", "a": "b", "y": "x"}
    assert third.names_in(first) == {"c": "a", "b": "a", "y": "x"}
    assert first.names_in(first) == {}
