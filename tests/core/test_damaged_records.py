"""Records of a checkpoint that are emptied, cut, or have another bit: noticed by whoever reads them, in one line."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from buckets.audit.folder import AuditFolder
from buckets.backfill.fill_chunks import Chunk, FillChunks, Plan
from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.job_record import Import
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.record_files import (
    BackfillRequest,
    BackfillRequests,
    OwnedFolder,
    seal_bytes,
    seal_json,
    unseal_bytes,
    unseal_json,
)
from buckets.checkpoint.topic_generations import TopicGenerations, TopicPosition
from buckets.config.settings import AuditSettings
from buckets.errors import BucketsError
from buckets.feeds.lists import ListBook, WholeList
from buckets.lists.base import Entry
from buckets.lists.index import ListIndex
from buckets.monitor.live import LiveStatus, live_path, read_live
from buckets.rules.completeness import Stretch
from buckets.rules.rule_set import RuleSet
from tests.core.checkpoints import ONE, basis, book_of, ran, terms
from tests.core.examples import rule

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.text().filter(lambda name: name != "checksum"), JSON, max_size=4)


@given(RECORDS, st.sampled_from([None, 1]))
def test_a_record_is_json_and_says_what_was_written(record: dict[str, Any], indent: int | None):
    sealed = seal_json(record, indent)
    assert unseal_json(sealed) == record
    assert json.loads(sealed) == record | {"checksum": json.loads(sealed)["checksum"]}


@given(RECORDS | st.binary(max_size=40), st.data())
def test_a_bit_that_is_another_and_what_is_cut_off_are_noticed(record: dict[str, Any] | bytes, data: st.DataObject):
    if isinstance(record, bytes):
        sealed, unseal = seal_bytes(record), unseal_bytes
        assert bytes(unseal(sealed)) == record
    else:
        sealed, unseal = seal_json(record), unseal_json
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    for damaged in (flipped(sealed, bit), sealed[: bit // 8]):
        with pytest.raises(ValueError, match=r".*"):
            unseal(damaged)


@pytest.mark.parametrize("number", range(3))
def test_several_other_bytes_in_the_name_of_the_checksum_are_damage_too(number: int, as_worded):
    sealed = bytearray(seal_json({"a": 1}))
    for at in range(2, 2 + number + 1):
        sealed[at] ^= 1
    with pytest.raises(ValueError, check=as_worded):
        unseal_json(bytes(sealed))


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


class Kind(NamedTuple):
    """A kind of records.

    Attributes:
        write: writes some into a checkpoint.
        file: which file of them is damaged, below the checkpoint.
        read: reads them.
    """

    write: Callable[[Path], Any]
    file: str
    read: Callable[[Path], Any]


def write_cuts(checkpoint: Path) -> None:
    """Lines of two batches whose records are forgotten."""
    (checkpoint / "spark" / "commits").mkdir(parents=True)
    with patch("buckets.checkpoint.batch_ends._TOGETHER", 1):
        for number in (0, 1):
            write_cut(checkpoint, number)
    shutil.rmtree(checkpoint / "buckets" / "batches")
    (checkpoint / "spark" / "commits" / "1").touch()


def write_cut(checkpoint: Path, number: int) -> None:
    known = Checkpoint(checkpoint)
    known.batches.keep(number, BatchRecord(1, (), done=True, lists={"l": number}))
    known.cuts.keep(number)


def write_list(checkpoint: Path) -> None:
    lists, index = ListVersions(checkpoint), ListIndex.of({"a": Entry(), "b": Entry({"kind": "c"}, 7, "ann", "why")})
    _, index = lists.keep("l", index, None, "a test", None, 2)
    changes = {"c": Entry({"kind": "d"})}
    lists.keep("l", index.with_changes(changes), changes, "a test", TopicPosition(5), 1)


def write_driver(checkpoint: Path) -> None:
    driver = Checkpoint(checkpoint).driver
    for number in range(3):
        driver.write(number, {("heads", b"k"): bytes([number])}, dict)


def write_rules(checkpoint: Path) -> None:
    ran(book_of(Checkpoint(checkpoint), ONE), 0)
    ran(book_of(Checkpoint(checkpoint), [*ONE, rule("two")]), 1)


def write_batches(checkpoint: Path) -> None:
    record = BatchRecord(1, (Stretch(1, 2),), done=True, lists={"l": 1}, driver=0)
    Checkpoint(checkpoint).batches.keep(4, record)


def write_chunks(checkpoint: Path) -> FillChunks:
    chunks = FillChunks(checkpoint, 3)
    chunks.keep_plan(Plan(10, 1))
    chunks.write(0, Chunk({0: b"some", 2: b"more"}, 10, 10, {"l": 1}))
    chunks.finish(1)
    return chunks


def write_live(checkpoint: Path) -> None:
    checkpoint.mkdir()
    with LiveStatus(checkpoint, lambda: RuleSet(1, (), (), {})):
        pass


def audit_of(checkpoint: Path) -> AuditFolder:
    return AuditFolder(AuditSettings(path=str(checkpoint.parent / "audit"), checkpoint=str(checkpoint)))


ASKED = BackfillRequest(rule("one"), "ann", "why", 5)
MADE = Import(4, 5, "/old", 16, 0)
KINDS = {
    "job": Kind(lambda at: Checkpoint(at).job.open(basis()), "job.json", lambda at: Checkpoint(at).job.written()),
    "rule set": Kind(
        write_rules,
        "rule_sets/000002.json",
        lambda at: (Checkpoint(at).versions.latest_rule_set(), Checkpoint(at).versions.gone_rules()),
    ),
    "history of rules": Kind(write_rules, "rule_sets/000001.json", lambda at: Checkpoint(at).versions.history()),
    "position": Kind(
        lambda at: Checkpoint(at).versions.keep_position(TopicPosition(5), "topic t", 0),
        "rules_position.json",
        lambda at: Checkpoint(at).versions.position("topic t"),
    ),
    "batch": Kind(write_batches, "batches/000000004.json", lambda at: Checkpoint(at).batches.record(4)),
    "oldest lists": Kind(write_batches, "batches/000000004.json", lambda at: Checkpoint(at).batches.oldest_lists()),
    "terms": Kind(
        lambda at: Checkpoint(at).batches.terms_for(0, terms()),
        "terms/000000000.json",
        lambda at: Checkpoint(at).batches.all_terms(),
    ),
    "terms of a batch": Kind(
        lambda at: Checkpoint(at).batches.terms_for(0, terms()),
        "terms/000000000.json",
        lambda at: Checkpoint(at).batches.terms_for(1, terms()),
    ),
    "cuts": Kind(write_cuts, "cuts/000000000.jsonl", lambda at: Checkpoint(at).cuts.read()),
    "driver": Kind(write_driver, "driver/000000001.changes", lambda at: Checkpoint(at).driver.read(2)),
    "list": Kind(write_list, "lists/l/000000002.json", lambda at: ListVersions(at).index("l", 2)),
    "base of a list": Kind(write_list, "lists/l/000000001.arrow", lambda at: ListVersions(at).index("l", 2)),
    "record of a base": Kind(write_list, "lists/l/000000001.json", lambda at: ListVersions(at).index("l", 2)),
    "faults of lists": Kind(
        lambda at: ListVersions(at).keep_faults({"l": "it is gone"}),
        "lists/faults.json",
        lambda at: ListVersions(at).faults(),
    ),
    "imports": Kind(
        lambda at: Checkpoint(at).imports.keep(MADE), "imports.json", lambda at: Checkpoint(at).imports.read()
    ),
    "topics": Kind(
        lambda at: TopicGenerations(at).adopt({"t": "one"}), "topics.json", lambda at: TopicGenerations(at).of("t")
    ),
    "request": Kind(
        lambda at: BackfillRequests(at).ask(ASKED), "backfill_requests/*", lambda at: BackfillRequests(at).read()
    ),
    "chunk": Kind(write_chunks, "fills/3/000000000.arrow", lambda at: FillChunks(at, 3).read(0, 2)),
    "plan": Kind(write_chunks, "fills/3/plan.json", lambda at: FillChunks(at, 3).plan()),
    "end of chunks": Kind(write_chunks, "fills/3/whole.json", lambda at: FillChunks(at, 3).total()),
    "audit": Kind(lambda at: audit_of(at).open(), "audit.json", lambda at: audit_of(at).topics({})),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_damaged_record_is_named_with_the_way_out_in_one_line(tmp_path: Path, kind: Kind, as_worded):
    checkpoint, places = tmp_path / "checkpoint", random.Random(f"{kind.file}")
    kind.write(checkpoint)
    (file,) = (checkpoint / "buckets").glob(kind.file)
    whole = file.read_bytes()
    kind.read(checkpoint)
    bits = [*range(0, 64), *(places.randrange(len(whole) * 8) for _ in range(60))]
    said = set()
    cuts = [0, 1, len(whole) - 2, *(places.randrange(len(whole) - 1) for _ in range(10))]
    for damaged in (*(whole[:cut] for cut in cuts), *(flipped(whole, bit) for bit in bits)):
        if ignores(kind, whole, damaged):
            continue
        file.write_bytes(damaged)
        with pytest.raises(BucketsError) as error:
            kind.read(checkpoint)
        assert str(file.relative_to(checkpoint)) in error.value.message
        assert "\n" not in error.value.message
        said.add(error.value.message)
    assert as_worded("\n".join(sorted(said)))
    file.write_bytes(whole)
    kind.read(checkpoint)


NUMBERED = ("rule_sets", "batches", "terms", "lists/l", "driver")
"""Folders with records of one kind that differ in their numbers."""


def write_job(checkpoint: Path) -> None:
    """Three batches of a job: under changing rules and terms, with a list, state on the driver and single records."""
    found = Checkpoint(checkpoint)
    found.job.open(basis())
    write_list(checkpoint)
    write_driver(checkpoint)
    for batch_id, rules in enumerate((ONE, ONE, [*ONE, rule("two")])):
        found.batches.terms_for(batch_id, terms(late=("drop", "add", "evaluate")[batch_id]))
        TopicGenerations(checkpoint).adopt({"t": "one"})
        ran(book_of(found, rules), batch_id)
        record = found.batches.record(batch_id)
        found.batches.keep(batch_id, replace(record, lists={"l": 2}, driver=batch_id))
    found.check()


@pytest.mark.parametrize("folder", NUMBERED)
def test_a_record_in_the_place_of_another_of_its_kind_is_damage(tmp_path: Path, folder: str, as_worded):
    write_job(tmp_path)
    paths = sorted(path for path in (tmp_path / "buckets" / folder).iterdir() if path.suffix in (".json", ".changes"))
    assert len(paths) > 1
    paths[-1].write_bytes(paths[0].read_bytes())
    with pytest.raises(BucketsError, check=as_worded):
        Checkpoint(tmp_path).check()


NEEDED = (
    "job.json",
    "rule_sets/000000002.json",
    "terms/000000000.json",
    "terms/000000001.json",
    "terms/000000002.json",
    "lists/l/000000002.json",
    "driver/000000002.changes",
    "driver/000000001.changes",
    "topics.json",
)


@pytest.mark.parametrize("name", NEEDED)
def test_a_record_that_is_gone_is_named_before_a_job_goes_on(tmp_path: Path, name: str, as_worded):
    write_job(tmp_path)
    (file,) = (tmp_path / "buckets").glob(name.replace("/000000", "/*"))
    file.unlink()
    with pytest.raises(BucketsError, check=as_worded):
        go_on(Checkpoint(tmp_path))


def go_on(checkpoint: Checkpoint) -> None:
    """See what a start sees."""
    checkpoint.job.identity(basis())
    checkpoint.check()


def ignores(kind: Kind, whole: bytes, damaged: bytes) -> bool:
    """Whether only the line feed at the end of the last cut is another byte, which says nothing."""
    return kind.file.startswith("cuts") and damaged[: len(whole) - 1] == whole[:-1] and damaged[-1:].isspace()


def test_what_a_crash_leaves_of_a_cut_is_no_damage_and_a_missing_one_is(tmp_path: Path, as_worded):
    write_cuts(tmp_path)
    cuts, (file,) = Checkpoint(tmp_path).cuts, (tmp_path / "buckets" / "cuts").iterdir()
    found, whole = cuts.read(), file.read_bytes()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(whole + b"\n" + lines[-1][:20])
    assert cuts.read() == found
    write_cut(tmp_path, 2)
    assert [cut.batch_id for cut in cuts.read()] == [0, 1, 2]
    for number in (0, 1):
        file.write_bytes(b"".join(line for line in lines if f'"batch_id": {number},'.encode() not in line))
        with pytest.raises(BucketsError, check=as_worded):
            cuts.read()


@pytest.mark.slow
def test_the_owner_of_a_folder_and_the_status_of_a_job_are_checked_too(tmp_path: Path, as_worded):
    folder = OwnedFolder(tmp_path / "tables", "output.path")
    folder.take("me")
    write_live(tmp_path / "checkpoint")
    readers = {
        folder.owner: folder.identity,
        live_path(tmp_path / "checkpoint"): lambda: read_live(tmp_path / "checkpoint"),
    }
    for file, read in readers.items():
        whole, said = file.read_bytes(), set()
        for damaged in (b"", whole[:-1], *(flipped(whole, bit) for bit in range(0, len(whole) * 8, 7))):
            file.write_bytes(damaged)
            with pytest.raises(BucketsError) as error:
                read()
            said.add(error.value.message)
        assert as_worded("\n".join(sorted(said)))


def test_a_record_that_arrow_alone_would_take_is_refused(tmp_path: Path, as_worded):
    """A bit in the middle of a list is noticed by its checksum, and by nothing else."""
    write_list(tmp_path)
    file = tmp_path / "buckets" / "lists" / "l" / "000000001.arrow"
    file.write_bytes(file.read_bytes().replace(b"ann", b"anm"))
    assert pa.ipc.open_file(file).read_all()["author"].to_pylist().count("anm") == 1
    with pytest.raises(BucketsError, check=as_worded):
        ListVersions(tmp_path).index("l", 1)


def test_the_newest_files_that_a_batch_is_recorded_with_may_not_be_missing(tmp_path: Path, as_worded):
    """Without them the job would go on from older rules, lists or state, and nobody would know."""
    write_rules(tmp_path)
    write_list(tmp_path)
    write_driver(tmp_path)
    known = Checkpoint(tmp_path)
    known.batches.keep(2, BatchRecord(2, (), done=True, lists={"l": 2}, driver=known.driver.newest(2)))
    feed = WholeList(tmp_path / "l.csv")
    (tmp_path / "l.csv").write_text("key\na\n")
    starts: dict[str, Callable[[], Any]] = {
        "driver/000000002.changes": lambda: known.driver.read(2),
        "rule_sets/000002.json": lambda: book_of(known, ONE),
        "lists/l/000000002.json": lambda: ListBook(Checkpoint(tmp_path), {"l": feed}).start_reading(),
        "batches/000000002.json": lambda: book_of(Checkpoint(tmp_path), ONE).for_batch(3),
    }
    for name, start in starts.items():
        file = tmp_path / "buckets" / name
        whole = file.read_bytes()
        file.unlink()
        with pytest.raises(BucketsError, check=as_worded):
            start()
        file.write_bytes(whole)
    for start in starts.values():
        start()


def test_state_of_the_driver_that_a_batch_did_not_change_is_of_an_earlier_one(tmp_path: Path, as_worded):
    known = Checkpoint(tmp_path)
    write_driver(tmp_path)
    for number in range(4):
        known.batches.keep(number, BatchRecord(1, (), done=True, driver=known.driver.newest(number)))
    assert [known.driver.read(number) for number in (2, 3)] == [{("heads", b"k"): b"\2"}] * 2
    known.batches.keep(4, BatchRecord(1, (), done=True))
    (tmp_path / "buckets" / "driver" / "000000002.changes").unlink()
    assert known.driver.read(1) == known.driver.read(4) == {("heads", b"k"): b"\1"}
    with pytest.raises(BucketsError, check=as_worded):
        known.driver.read(3)
