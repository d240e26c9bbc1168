"""Features by day, written round by round: whatever is killed goes on, and ends as if nothing had been."""

import datetime
import errno
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from buckets.archive.history import History
from buckets.delta.commits import Commits
from buckets.errors import BucketsError
from buckets.history import feature_folder, features, scoring
from buckets.history.feature_folder import FeatureFolder, Unit
from buckets.history.features import FeatureRun, check_output
from buckets.history.scoring import KeptTimelines, ScoreArchive, score_archive, spans_of
from tests.core.archived_job import ArchivedJob
from tests.core.examples import SCHEMA
from tests.core.test_feature_run import RULES

DAY_MS = 86_400_000


def payments(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Payments of several days around 1970, of which some are late, some come twice, and some have no payer or time."""
    dice, found = random.Random(first), []
    for n in range(first, first + count):
        row = {"id": f"e{n}", "at": (n - 30) * DAY_MS // 9 + dice.choice([0, 0, -600_000]), "payer": f"p{n % 5}"}
        found.append(row | {"kind": "ab"[n % 2], "amount": f"{n}.5", "position": n})
    found[3] |= {"payer": None}
    found[5] |= {"at": None}
    found[7] = dict(found[6]) | {"position": found[7]["position"]}
    return found


def lived(folder: Path, shards: int = 3, sizes: tuple[int, ...] = (17, 40, 3, 20)) -> ArchivedJob:
    job = ArchivedJob(folder, SCHEMA, shards=shards, allowed_lateness="1h")
    job.take(RULES)
    score(job, sizes)
    return job


def score(job: ArchivedJob, sizes: tuple[int, ...], first: int = 0) -> None:
    rows = payments(sum(sizes), first)
    for size in sizes:
        job.batch(rows[:size])
        rows = rows[size:]


def past(job: ArchivedJob) -> History:
    return History(None, job.archive, job.recorded)


def run_of(history: History, ids: list[str] | None = None, flags: bool = True) -> FeatureRun:
    terms = history.recorded.terms(0)
    rule_set = history.recorded.rule_set(history.recorded.cuts[-1].ruleset_version)
    return FeatureRun(rule_set, terms.event_schema, terms.engine, None if ids is None else pa.array(ids), flags)


def write(
    history: History,
    path: Path,
    by: Unit = "day",
    score: ScoreArchive = score_archive,
    overwrite: bool = False,
    **asked: Any,
) -> FeatureRun:
    """Write, or go on with what is written."""
    run = run_of(history, **asked)
    folder = check_output(path, None, run.columns, overwrite, by)
    with folder.begun(run.question(history), overwrite) as first:
        list(run.write(history, score, folder, first))
    return run


def rows_in(path: Path) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().sort_by("position").to_pylist()


def contents(path: Path) -> dict[str, bytes]:
    """All files but the log, as they are: bytes of rows, and which timelines there are."""
    files = (file for file in path.rglob("*") if file.is_file() and "_delta_log" not in file.parts)
    return {str(file.relative_to(path)): file.read_bytes() if file.suffix == ".parquet" else b"" for file in files}


class Killed(BaseException):
    """Ends everything at once."""


@contextmanager
def killed(monkeypatch, dice: random.Random, most: int = 30) -> Iterator[None]:
    """Die before or after one of the next changes of files by this process."""
    left = dice.randrange(most)

    def mortal(change: Callable) -> Callable:
        def changed(*arguments, **options):
            nonlocal left
            for do in (lambda: None, lambda: change(*arguments, **options)):
                done = do()
                left -= 1
                if left < 0:
                    raise Killed
            return done

        return changed

    places = [(Path, "replace"), (Path, "unlink"), (Commits, "put"), (KeptTimelines, "save"), (shutil, "rmtree")]
    places += [(feature_folder, "write_data_file"), (DeltaTable, "create")]
    with monkeypatch.context() as patch:
        for place, name in places:
            patch.setattr(place, name, mortal(getattr(place, name)))
        yield


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("round_s", [0.0, 60.0], ids=["of one piece each", "that get larger"])
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(seed, round_s, tmp_path, monkeypatch):
    dice = random.Random(seed)
    monkeypatch.setattr(scoring, "JOINED_ROWS", dice.choice([4, 7, 30]))
    monkeypatch.setattr(features, "ROUND_S", round_s)
    history = past(lived(tmp_path, shards=dice.randrange(1, 5)))
    by, ids = dice.choice(["day", "month", "year"]), dice.choice([None, ["e8", "e6", "e50", "never"]])
    undisturbed, deaths, run = write(history, tmp_path / "whole", by, ids=ids), 0, None
    while run is None:
        with killed(monkeypatch, dice):
            try:
                run = write(history, tmp_path / "killed", by, ids=ids)
            except Killed:
                deaths += 1
    assert deaths
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert rows_in(tmp_path / "killed") == rows_in(tmp_path / "whole")
    assert (run.arrived, run.outcomes) == (undisturbed.arrived, undisturbed.outcomes)
    assert (run.missing, ids) in ((None, None), ({"never"}, ids))


@pytest.mark.parametrize("by", ["day", "month", "year"])
def test_rows_are_those_of_one_table_each_where_its_time_says(by, tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "JOINED_ROWS", 9)
    history, path = past(lived(tmp_path)), tmp_path / "out"
    write(history, path, by)
    whole = pa.concat_tables(run_of(history).tables_of(history, score_archive))
    table = DeltaTable(path).to_pyarrow_table().sort_by("position")
    assert table.drop_columns([by]).cast(whole.schema) == whole
    times = whole["event_time"].cast(pa.timestamp("ms"))
    assert table[by].to_pylist() == pc.floor_temporal(times, unit=by).cast(pa.date32()).to_pylist()
    assert None in table[by].to_pylist()
    assert any(date is not None and date.year < 1970 for date in table[by].to_pylist())
    # The same files, as readers of Parquet in folders see them.
    as_files = ds.dataset(
        path, format="parquet", partitioning=ds.partitioning(flavor="hive", schema=pa.schema([(by, pa.date32())]))
    )
    assert as_files.to_table().select(table.column_names).sort_by("position") == table


def test_a_reader_of_one_day_opens_the_files_of_that_day(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "JOINED_ROWS", 9)
    write(past(lived(tmp_path)), tmp_path / "out")
    table = DeltaTable(tmp_path / "out")
    date = datetime.date(1970, 1, 2)
    files = table.file_uris(file_pruning_predicate=[("day", "=", str(date))])
    assert 0 < len(files) < len(table.file_uris())
    assert all(f"day={date}" in file for file in files)
    chosen = table.to_pyarrow_table(filters=[("day", "=", date)])
    assert set(chosen["day"].to_pylist()) == {date}


def test_what_has_arrived_since_is_added_and_nothing_is_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "JOINED_ROWS", 9)
    job, path = lived(tmp_path), tmp_path / "out"
    first = write(past(job), path)
    score(job, (11, 30), first=80)
    second = write(past(job), path)
    assert (first.arrived, second.arrived) == (80, 121)
    expected = pa.concat_tables(run_of(past(job), flags=False).tables_of(past(job), score_archive)).to_pylist()
    found = rows_in(path)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    before = contents(path)
    assert write(past(job), path).outcomes == second.outcomes
    assert contents(path) == before


@pytest.mark.parametrize("asked", [{"flags": False}, {"ids": ["e1"]}, {"by": "month"}, {"job": True}])
def test_another_question_is_refused_in_one_line_and_changes_nothing(asked, tmp_path, as_worded):
    job, path = lived(tmp_path / "job"), tmp_path / "out"
    write(past(job), path)
    before = contents(path)
    if asked.pop("job", False):
        job = lived(tmp_path / "other")
    with pytest.raises(BucketsError, check=as_worded):
        write(past(job), path, **asked)
    assert contents(path) == before


def test_two_at_once_are_refused_and_an_empty_folder_is_not(tmp_path, as_worded):
    history, path = past(lived(tmp_path)), tmp_path / "out"
    path.mkdir()
    run = run_of(history)
    folder = check_output(path, None, run.columns, False, "day")
    assert isinstance(folder, FeatureFolder)
    with folder.begun(run.question(history), False), pytest.raises(BucketsError, check=as_worded):
        write(history, path)
    write(history, path)
    assert len(rows_in(path)) == 80


@pytest.mark.parametrize("joined", [4, 7, 30])
def test_pieces_from_the_end_of_any_piece_on_are_the_same(joined, tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "JOINED_ROWS", joined)
    history = past(lived(tmp_path, sizes=(3, 30, 2, 2, 25, 1, 9)))

    def spans(first: int = 0) -> list[tuple[int, int]]:
        return [(span.first, span.end) for span in spans_of(history, lambda one, other: True, first)]

    for number, (_, end) in enumerate(spans()):
        assert spans(end) == spans()[number + 1 :]


def test_only_files_of_its_own_are_removed(tmp_path):
    history, path = past(lived(tmp_path / "job")), tmp_path / "out"
    write(history, path)
    before = rows_in(path)
    foreign = [path / name / "mine.parquet" for name in ("day=1970-01-01", "day=2020-01-01", "_timelines/mine")]
    for file in (path / "notes.txt", *foreign):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    (path / "_timelines" / "link").symlink_to(tmp_path)
    for overwrite in (False, True):
        write(history, path, overwrite=overwrite)
        assert all(file.read_text() == "mine" for file in foreign)
        assert rows_in(path) == before


def test_a_disk_without_room_is_one_line_and_the_same_command_goes_on(tmp_path, monkeypatch, as_worded):
    history, path = past(lived(tmp_path / "job")), tmp_path / "out"
    reason = "No space left on device"
    for full in (OSError(errno.ENOSPC, reason), DeltaError(f"Generic LocalFileSystem error: {reason} (os error 28)")):
        with monkeypatch.context() as patched:
            patched.setattr(FeatureFolder, "commit", mock.Mock(side_effect=full))
            with pytest.raises(BucketsError, check=as_worded):
                write(history, path)
    write(history, path)
    assert len(rows_in(path)) == 80


def test_a_file_in_the_way_is_refused(tmp_path, as_worded):
    history, path = past(lived(tmp_path / "job")), tmp_path / "out"
    path.write_text("")
    with pytest.raises(BucketsError, check=as_worded):
        write(history, path)
