"""A checkpoint of an earlier version of the codec goes on as if nothing had happened.

`data/codec-1.tar.gz` is `checkpoint/` and `tables/` of `JobFolder` at `WRITTEN_AT`, by the last release that wrote
version 1, after the first two of the four files of the fixture `finished`.
"""

import json
import tarfile
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.spark.state_reader import read_stats
from tests.spark.job_folder import JobFolder
from tests.spark.payments import payments

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
    assert json.loads((old.checkpoint / "buckets" / "job.json").read_text())["codec"] == 3


def as_then(row: dict) -> dict:
    """A row without the folder of its source, what that release did not write, and the id that it made otherwise."""
    shown = {name: value for name, value in row.items() if name not in {"alert_id", *COLUMNS_SINCE}}
    return dict(sorted((name, Path(value).name if name == "source" else value) for name, value in shown.items()))


def test_a_checkpoint_of_a_later_codec_is_refused_before_any_batch(spark, old):
    job = old.checkpoint / "buckets" / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"codec": 99}))
    old.add_events(payments(EVENTS), files=FILES)
    with pytest.raises(BucketsError, match="was written by codec version 99, and this release reads 1 to 3"):
        old.run(spark)
    assert not (old.checkpoint / "spark" / "offsets" / "2").exists()


def test_the_state_of_a_checkpoint_of_codec_1_can_be_read_before_it_is_gone_on_with(spark, old):
    stats = read_stats(spark, old.checkpoint, largest=1)
    assert sum(group.keys for group in stats.groups) == 7
    assert sum(group.pages for group in stats.groups) == 0
