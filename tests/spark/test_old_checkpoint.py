"""A checkpoint of an earlier version of the codec goes on as if nothing had happened.

`data/codec-1.tar.gz` is `checkpoint/` and `tables/` of `JobFolder` at `WRITTEN_AT`, by the last release that wrote
version 1, after the first two of the four files of the fixture `finished`.
"""

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

import buckets
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from buckets.rules.rule import Rule
from buckets.spark.state_reader import read_stats
from tests.core.checkpoints import written_in
from tests.spark.job_folder import JobFolder
from tests.spark.payments import EVENT_SCHEMA, RULES, payments

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).parent / "data" / "codec-1.tar.gz"
WRITTEN_AT = "/tmp/buckets-codec-1"
FILES, EVENTS = 4, 100
COLUMNS_SINCE = {
    "count_lower",
    "count_upper",
    "warm",
    "terms",
    "condition",
    "tags",
    "score",
    "held_back",
    "held_alerts",
    "no_key",
    "skipped",
    "unjudged",
    "rounded",
    "compared",
    "other_values",
    "own_values",
}
"""Columns that tables have got since, which are null in the rows of that release."""


@pytest.fixture
def old(tmp_path: Path) -> JobFolder:
    """The job in another folder: the paths in its checkpoint are those of that folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path / "checkpoint").rglob("*"):
        if path.is_file() and WRITTEN_AT.encode() in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(WRITTEN_AT.encode(), str(tmp_path).encode()))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return JobFolder(tmp_path)


def test_a_checkpoint_of_codec_1_goes_on_with_the_same_results(spark, old, finished):
    old.add_events(payments(EVENTS), files=FILES)
    reports = old.run(spark)
    assert [report.account.batch_id for report in reports] == [2, 3]
    mine, expected = old.all_rows(), finished.all_rows()
    assert mine.keys() == expected.keys()
    for name in mine:
        found, wanted = (sorted(map(as_then, rows[name]), key=repr) for rows in (mine, expected))
        assert found == wanted
        for row in mine[name]:
            since = COLUMNS_SINCE if name in ("alerts", "shadow_alerts") else COLUMNS_SINCE - {"terms"}
            assert row["batch_id"] < 2 or all(row.get(column, True) is not None for column in since)
    assert written_in(old.checkpoint / "buckets" / "job.json")["codec"] == 4


def test_a_checkpoint_of_codec_1_goes_on_with_events_that_lack_fields(spark, old):
    """What was kept counts, and what comes after it is warm: the results are those of one process from the start."""
    events = payments(EVENTS)
    for number, event in enumerate(events[EVENTS // 2 :]):
        events[EVENTS // 2 + number] = event | dict.fromkeys(
            [name for name, every in (("payer", 5), ("kind", 7), ("amount", 3)) if number % every == 0]
        )
    old.add_events(events, files=FILES)
    old.run(spark)
    rules = [Rule.model_validate(rule) for rule in RULES]
    settings = EngineSettings.model_validate({"shards": 4, "allowed_lateness": "100ms"})
    table = pa.table({name: [event[name] for event in events] for name in ("id", "t", "payer", "kind", "amount")})
    expected = buckets.Evaluator(rules, EVENT_SCHEMA, settings).evaluate(table).evaluations.to_pylist()
    names = ("event_id", "rule_id", "event_time", "value", "lower", "upper", "count", "fired", "warm")
    found = [row for row in old.rows("evaluations") if row["batch_id"] >= 2]
    wanted = [row for row in expected if row["position"] >= EVENTS // 2]
    as_tuples = [sorted((tuple(row[name] for name in names) for row in rows), key=repr) for rows in (found, wanted)]
    assert as_tuples[0] == as_tuples[1]
    accounts = [row for row in old.rows("batches") if row["batch_id"] >= 2]
    lacking = sum(event["payer"] is None for event in events)
    assert sum(row["no_key"] for row in accounts if row["group"] == "payer") == lacking
    assert not any(row["dead_letters"] for row in accounts)


def as_then(row: dict) -> dict:
    """A row without the folder of its source, what that release did not write, and the id that it made otherwise."""
    later = {"alert_id", *COLUMNS_SINCE} | ({"event"} if "compared" in row else set())
    shown = {name: value for name, value in row.items() if name not in later}
    return dict(sorted((name, Path(value).name if name == "source" else value) for name, value in shown.items()))


def test_a_checkpoint_of_a_later_codec_is_refused_before_any_batch(spark, old, as_worded):
    job = old.checkpoint / "buckets" / "job.json"
    job.write_text(json.dumps(written_in(job) | {"codec": 99}))
    old.add_events(payments(EVENTS), files=FILES)
    with pytest.raises(BucketsError, check=as_worded):
        old.run(spark)
    assert not (old.checkpoint / "spark" / "offsets" / "2").exists()


def test_the_state_of_a_checkpoint_of_codec_1_can_be_read_before_it_is_gone_on_with(spark, old):
    stats = read_stats(spark, old.checkpoint, largest=1)
    assert sum(group.keys for group in stats.groups) == 7
    assert sum(group.pages for group in stats.groups) == 0
