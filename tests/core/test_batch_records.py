"""Which rules evaluate which batch, also after a crash."""

import pytest

from buckets.checkpoint.batch_records import KEPT_BATCHES, BatchRecord
from buckets.rules.completeness import Stretch
from tests.core.checkpoints import ONE, OTHER, book_of, files, ran, written_in
from tests.core.examples import since


def test_batches_are_evaluated_by_the_rules_in_force_and_a_change_is_a_new_version(checkpoint):
    assert [ran(book_of(checkpoint, ONE), batch) for batch in (0, 1)] == [1, 1]
    assert [ran(book_of(checkpoint, OTHER), batch) for batch in (2, 3)] == [2, 2]
    assert [ran(book_of(checkpoint, ONE), batch) for batch in (4, 5)] == [3, 3]
    again = tuple(rule.model_copy(update={"version": 2}) for rule in ONE)
    assert [checkpoint.versions.rule_set(version).rules for version in (1, 2, 3)] == [tuple(ONE), tuple(OTHER), again]


def test_a_batch_that_is_run_again_has_the_rules_it_had(checkpoint):
    ran(book_of(checkpoint, ONE), 0)
    book_of(checkpoint, ONE).for_batch(1)
    again = book_of(checkpoint, OTHER)
    assert again.for_batch(1) == checkpoint.versions.rule_set(1)
    assert again.for_batch(1).rules == tuple(ONE)
    assert ran(again, 1) == 1
    assert ran(again, 2) == 2


def test_a_batch_that_had_run_is_run_again_with_its_rules_while_newer_ones_exist(checkpoint):
    ran(book_of(checkpoint, ONE), 0)
    ran(book_of(checkpoint, OTHER), 1)
    assert book_of(checkpoint, OTHER).for_batch(0).rules == tuple(ONE)
    assert book_of(checkpoint, ONE).for_batch(1).rules == tuple(OTHER)


def test_the_version_is_recorded_before_the_batch_runs(checkpoint):
    book_of(checkpoint, ONE).for_batch(7)
    written = written_in(checkpoint.path / "buckets" / "batches" / "000000007.json")
    assert written == {"ruleset_version": 1, "arrived": [], "done": False}
    assert checkpoint.batches.record(7) == BatchRecord(1, (), done=False)


def test_a_version_written_by_a_run_that_died_at_once_is_taken_up(checkpoint):
    ran(book_of(checkpoint, ONE), 0)
    book = book_of(checkpoint, OTHER)
    book.for_batch(1)
    (checkpoint.path / "buckets" / "batches" / "000000001.json").unlink()
    assert ran(book_of(checkpoint, OTHER), 1) == 2


def test_what_has_arrived_is_added_up_over_batches(checkpoint):
    book = book_of(checkpoint, ONE)
    for batch, latest_ms in enumerate([None, -5, 700, 300, None]):
        ran(book, batch, latest_ms)
    arrived = [[], [[-5, -5]], [[-5, 700]], [[-5, 700]], [[-5, 700]]]
    files_of_batches = [checkpoint.path / "buckets" / "batches" / f"{batch:09d}.json" for batch in range(5)]
    assert [written_in(file) for file in files_of_batches] == [
        {"ruleset_version": 1, "arrived": stretches, "done": True} for stretches in arrived
    ]
    assert [checkpoint.batches.record(batch) for batch in range(5)] == [
        BatchRecord(1, tuple(Stretch(*stretch) for stretch in stretches), done=True) for stretches in arrived
    ]


def test_new_rules_begin_after_the_clock_of_the_batch_before(checkpoint):
    book = book_of(checkpoint, ONE)
    ran(book, 0, 700)
    ran(book, 1, 300)
    (group,) = book_of(checkpoint, OTHER).for_batch(2).groups
    assert set(since(group).values()) == {701}


@pytest.mark.slow
def test_records_that_spark_cannot_go_back_to_are_forgotten(checkpoint):
    book = book_of(checkpoint, ONE)
    for batch in range(KEPT_BATCHES + 3):
        ran(book, batch)
    names = sorted(path.stem for path in (checkpoint.path / "buckets" / "batches").iterdir())
    assert names == [f"{batch:09d}" for batch in range(3, KEPT_BATCHES + 3)]
    assert checkpoint.batches.record(2) is None
    assert checkpoint.versions.rule_set(1).rules == tuple(ONE)


def test_a_half_written_file_is_never_read(checkpoint):
    ran(book_of(checkpoint, ONE), 0)
    folder = checkpoint.path / "buckets"
    (folder / "rule_sets" / ".000002.json.partial").write_text('{"version": 2, "ru')
    (folder / "batches" / ".000000001.json.partial").write_text("{")
    assert checkpoint.versions.latest_rule_set() == checkpoint.versions.rule_set(1)
    assert checkpoint.batches.record(1) is None
    assert ran(book_of(checkpoint, OTHER), 1) == 2
    assert not [name for name in files(checkpoint) if name.endswith(".partial")]
