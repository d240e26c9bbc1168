"""An archive that is scored by tasks says what it says where one process scores it."""

import contextlib
import errno
import os
import random
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyspark.sql.functions as F
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buckets.history import features as features_module
from buckets.history import scoring
from buckets.history.backtest.backtest import archive_pieces
from buckets.history.backtest.sweep import parse_sweeps, swept_rules
from buckets.history.replay.replay import replay_history
from buckets.lists.list_file import load_list
from buckets.spark.history import score_archive
from tests.core.backfilled_job import BackfilledJob
from tests.core.backtests import backtest, payments, rule
from tests.core.examples import SCHEMA
from tests.core.examples import rule as payment_rule
from tests.core.recorded_job import RecordedJob
from tests.core.test_backtest import rule_sets
from tests.core.test_backtest_pieces import ROWS, RULES, archived_job
from tests.core.test_feature_folder import Killed, contents, killed, past, rows_in, write
from tests.core.test_feature_folder import lived as lived_of_days
from tests.core.test_feature_run import archived, features, rows
from tests.core.test_replay import lived, steps, told
from tests.laws import examples
from tests.strategies import cuts

pytestmark = pytest.mark.spark
FEW = settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(rule_sets(), payments(), cuts())
def test_a_backtest_is_that_of_one_process(spark, tmp_path_factory, rules, rows, positions):
    rows = [*ROWS, *rows, {"id": "broken", "t": 1_700_000_000_000, "payer": "p", "card": "c", "amount": "much"}]
    _, history = archived_job(tmp_path_factory.mktemp("job"), rows, positions)
    swept = swept_rules(parse_sweeps(["sums.limit=0,5,100"], RULES), RULES)
    listed = rule("listed", where="payer IN LIST known")
    fraud = {"e05": Decimal(99), "e06": None, "never": None}
    for asked in (backtest([*RULES, *rules], swept=swept, confirmed=fraud), backtest([*RULES, listed])):
        known = Path(tmp_path_factory.mktemp("list")) / "known.csv"
        known.write_text("key\np1\n")
        object.__setattr__(asked, "lists", {"known": load_list(known)})
        pieces = archive_pieces(history, asked)
        assert len(pieces) > 0
        alone = asked.run(map(pieces.read, range(len(pieces))))
        assert asked.report(score_archive(spark, pieces, "alerts", asked.found_in)) == alone
        assert alone.total.alerts > 0


@FEW
@given(steps(), st.sampled_from(["recorded", "joined"]))
def test_a_replay_is_that_of_one_process(spark, happened, cut_as):
    with lived(happened) as job:
        if not job.archive.end():
            return
        again = partial(replay_history, job.history(), evaluations=True, cuts=cut_as)
        on_spark = partial(score_archive, spark)
        assert told(again(score=on_spark)) == []
        gone = DeltaTable(job.folder / "tables" / "evaluations").to_pyarrow_table()["event_id"].to_pylist()[:1]
        DeltaTable(job.folder / "tables" / "evaluations").delete(f"event_id = '{gone[0]}'" if gone else "false")
        alone = again()
        assert told(again(score=on_spark)) == told(alone)
        assert bool(gone) == bool(told(alone))


class FilledJob(BackfilledJob, RecordedJob):
    """A job that fills in history, and leaves its tables behind."""


@pytest.mark.parametrize("cut_as", ["recorded", "joined"])
def test_a_replay_of_what_was_filled_in_is_that_of_one_process(spark, tmp_path, cut_as):
    job = FilledJob(tmp_path, SCHEMA, random.Random(1), shards=3, allowed_lateness="1h")
    asked = payment_rule("asked", group_by=["kind"], length="30m", cooldown="5m")
    job.use([payment_rule("plain", length="10m")])
    for number, start in enumerate(range(0, 61, 6)):
        if number == 3:
            job.use([*job.pipeline.rule_set.rules, asked])
            job.ask(asked)
        job.hurries = number >= 6
        job.batch(rows()[start : start + 6])
    assert (job.pipeline.rule_set.fills_begun, job.pipeline.rule_set.fills) == (1, ())
    for score in (scoring.score_archive, partial(score_archive, spark)):
        found = replay_history(job.history(), evaluations=True, cuts=cut_as, score=score)
        assert told(found) == []
        assert found.compared["evaluations"] == len(job.rows["evaluations"])
    assert {row["warm"] for row in job.rows["evaluations"] if row["rule_id"] == "asked"} == {False, True}


@pytest.mark.parametrize("ids", [None, ["e27", "e20", "never"]])
def test_features_are_those_of_one_process(spark, tmp_path, ids):
    _, past = archived(tmp_path)
    alone, expected = features(past, ids)
    run, found = features(past, ids, partial(score_archive, spark))
    assert found == expected
    assert (run.outcomes, run.arrived, run.missing) == (alone.outcomes, alone.arrived, alone.missing)


def test_a_disk_of_a_task_without_room_is_an_error_of_the_system(spark, tmp_path):
    def full(piece: scoring.ScoredPiece) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "day=2026-01-01/0.parquet")

    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device$"):
        features(archived(tmp_path)[1], None, lambda pieces, put_out, _: score_archive(spark, pieces, put_out, full))


@pytest.mark.parametrize("seed", range(2))
def test_features_by_day_are_the_files_of_one_process_also_after_kills(seed, spark, tmp_path, monkeypatch):
    dice = random.Random(seed)
    monkeypatch.setattr(scoring, "JOINED_ROWS", 9)
    monkeypatch.setattr(features_module, "ROUND_S", [0.0, 60.0][seed])
    history, run, deaths = past(lived_of_days(tmp_path, shards=3)), None, 0
    alone = write(history, tmp_path / "alone")
    while run is None:
        with killed(monkeypatch, dice, most=8) if deaths < 3 else contextlib.nullcontext():
            try:
                run = write(history, tmp_path / "tasks", score=partial(score_archive, spark))
            except Killed:
                deaths += 1
    assert deaths
    found, expected = contents(tmp_path / "tasks"), contents(tmp_path / "alone")
    assert rows_of(found) == rows_of(expected)
    assert rows_in(tmp_path / "tasks") == rows_in(tmp_path / "alone")
    assert (run.arrived, run.outcomes) == (alone.arrived, alone.outcomes)
    # As Spark reads it: as a table, and as files in folders, those of one day without the others.
    table, files = spark.read.format("delta"), spark.read.format("parquet")
    for frame in (reader.load(str(tmp_path / "tasks")) for reader in (table, files)):
        assert frame.count() == len(rows_in(tmp_path / "tasks"))
        of_day = frame.where(F.col("day") == F.lit("1970-01-02").cast("date"))
        assert {row["day"].isoformat() for row in of_day.collect()} == {"1970-01-02"}
        assert "PartitionFilters: [isnotnull(day" in of_day._jdf.queryExecution().toString()


def rows_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files without timelines: a task that has nothing to do for a shard does not write its timelines again."""
    return {name: content for name, content in files.items() if name.endswith(".parquet")}
