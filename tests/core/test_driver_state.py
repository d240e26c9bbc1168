"""The files of the driver: the state after any batch is what its changes, one after the other, have made of it."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.checkpoint.batch_records import KEPT_BATCHES
from buckets.checkpoint.driver_state import MOST_CHANGES, DriverState
from buckets.engine.stages.in_memory import DriverStore
from buckets.errors import BucketsError
from buckets.files import write_whole
from tests.laws import examples

KEYS = st.tuples(st.sampled_from(["heads", "pages"]), st.sampled_from([b"", b"a", b"\xff\0"]))
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.binary(max_size=3)), max_size=3)


def applied(state: dict, changes: dict) -> dict:
    return {at: value for at, value in (state | changes).items() if value is not None}


def folder_of(checkpoint: Path) -> Path:
    return checkpoint / "buckets" / "driver"


@settings(max_examples=examples(40))
@given(st.lists(CHANGES, max_size=12), st.data())
def test_the_state_after_any_batch_is_read_as_it_was_also_if_batches_are_run_again(all_changes, data):
    with tempfile.TemporaryDirectory() as folder:
        files, states = DriverState(Path(folder)), [{}]
        for changes in all_changes:
            batch_id = data.draw(st.integers(max(0, len(states) - 3), len(states) - 1))
            del states[batch_id + 1 :]
            states.append(applied(states[-1], changes))
            files.write(batch_id, changes, lambda: states[-1])
            assert [files.read(number) for number in range(-1, len(states) - 1)] == states


def changed_often(checkpoint: Path, batches: int) -> list[dict]:
    """The states after so many batches, all of which changed something."""
    files, states = DriverState(checkpoint), []
    for batch_id in range(batches):
        changes = {("heads", bytes([batch_id % 7])): batch_id.to_bytes(2, "big")}
        states.append(applied(states[-1] if states else {}, changes))
        files.write(batch_id, changes, lambda: states[-1])
    return states


@pytest.mark.slow
def test_what_spark_cannot_go_back_to_is_forgotten_and_all_else_can_be_read(tmp_path: Path):
    batches = KEPT_BATCHES + 2 * MOST_CHANGES + 5
    states = changed_often(tmp_path, batches)
    files = DriverState(tmp_path)
    for batch_id in range(batches - KEPT_BATCHES - 1, batches):
        assert files.read(batch_id) == states[batch_id]
    assert len(list(folder_of(tmp_path).iterdir())) < KEPT_BATCHES + MOST_CHANGES + 10


def test_large_changes_are_followed_by_all_of_the_state(tmp_path: Path):
    files, large = DriverState(tmp_path), {("heads", b"k"): bytes(range(256)) * 1000}
    for batch_id in range(400):
        value = b"".join((batch_id * 1000 + number).to_bytes(8, "big") for number in range(1000))
        files.write(batch_id, {("heads", b"k"): value}, lambda: large)
        if list(folder_of(tmp_path).glob("*.whole")):
            break
    assert batch_id < MOST_CHANGES - 1
    assert files.read(batch_id) == large


def test_nothing_is_written_where_nothing_has_changed(tmp_path: Path):
    store = DriverStore(DriverState(tmp_path))
    heads = store.of_batch(0).alerts.heads
    heads.put([(b"a", b"1")])
    heads.remove(ByteStrings.of([b"a"]))
    store.keep(0)
    assert not folder_of(tmp_path).exists()


def test_a_store_is_as_its_entries_say_before_and_after_it_is_kept(tmp_path: Path):
    store = DriverStore(DriverState(tmp_path))
    first = store.of_batch(0).alerts
    first.heads.put([(b"a", b"1"), (b"b", b"2")])
    store.keep(0)
    second = store.of_batch(1).alerts.heads
    second.remove(ByteStrings.of([b"a"]))
    second.put([(b"c", b"3")])
    assert second.get([b"a", b"b", b"c"]) == [b"", b"2", b"3"]
    assert sorted(second.list_keys()) == [b"b", b"c"]
    for again in (store, DriverStore(DriverState(tmp_path))):
        assert sorted(again.of_batch(1).alerts.heads.list_keys()) == [b"a", b"b"]


def test_a_file_that_is_damaged_or_missing_is_named(tmp_path: Path, as_worded):
    changed_often(tmp_path, 3)
    files, second = DriverState(tmp_path), folder_of(tmp_path) / "000000001.changes"
    whole = second.read_bytes()
    for damaged in (whole[:-1], b"", whole[:20] + b"x" + whole[21:]):
        write_whole(second, damaged)
        with pytest.raises(BucketsError, check=as_worded):
            files.read(2)
    second.unlink()
    with pytest.raises(BucketsError, check=as_worded):
        files.read(2)
    assert files.read(0)
