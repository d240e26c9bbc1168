"""The order of arrival across batches: a batch that lies before an earlier one is refused, or said."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.checkpoint.batch_ends import ArrivalOrder, OrderRange
from buckets.checkpoint.batch_records import BatchRecord, BatchRecords
from buckets.errors import BucketsError

SPANS = st.lists(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted).map(tuple), max_size=8)


def run(
    checkpoint: Path, spans: list[OrderRange | None], ordering: tuple[str | None, bool], restart: bool = False
) -> list[str]:
    """What is said of batches, one after the other."""
    said: list[str] = []
    order = ArrivalOrder(checkpoint, *ordering, said.append)
    for batch_id, span in enumerate(spans):
        if restart:
            order = ArrivalOrder(checkpoint, *ordering, said.append)
        order.check(batch_id, span)
        end(checkpoint, order, batch_id, span)
    return said


def end(checkpoint: Path, order: ArrivalOrder, batch_id: int, span: OrderRange | None) -> None:
    """Record that a batch has run, as a query does."""
    record = BatchRecord(1, (), done=True, greatest=order.done(batch_id, span))
    BatchRecords(checkpoint).keep(batch_id, record)


def in_order(spans: list[OrderRange | None]) -> bool:
    known = [span for span in spans if span is not None]
    return all(earlier[1] <= later[0] for at, later in enumerate(known) for earlier in known[:at])


@given(SPANS, st.booleans())
def test_a_batch_is_refused_if_and_only_if_some_earlier_batch_reaches_past_its_begin(tmp_path_factory, spans, restart):
    checkpoint = tmp_path_factory.mktemp("order")
    if in_order(spans):
        run(checkpoint, spans, ("seen", True), restart)
    else:
        with pytest.raises(BucketsError, match=r"so results would depend on how the stream is cut"):
            run(checkpoint, spans, ("seen", True), restart)


def test_what_is_refused_is_one_line_with_the_way_out(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        run(tmp_path, [(1, 5), None, (4, 9)], ("seen", True))


def test_a_batch_that_is_run_again_is_compared_with_those_before_it(tmp_path, as_worded):
    ordering = ("seen", True)
    run(tmp_path, [(1, 5), (6, 9)], ordering)
    again = ArrivalOrder(tmp_path, *ordering)
    again.check(1, (6, 9))
    end(tmp_path, again, 1, (6, 9))
    again.check(2, (9, 12))
    with pytest.raises(BucketsError, check=as_worded):
        again.check(2, (8, 12))


@pytest.mark.parametrize(
    ("column", "spans", "said"),
    [
        ("seen", [(1, 5), (5, 5), (5, 6)], ["batch 1: rows with the same seen (5) came in two batches"]),
        ("seen", [(1, 5), (4, 6), (3, 3)], ["batch 1: seen 4 arrives after 5 of an earlier batch, and is taken"]),
        (None, [(1, 1), (1, 2)], ["batch 1: files that were modified at the very same time (1) came in two batches"]),
        (None, [(5, 5), (6, 6), (2, 3)], ["batch 2: files that are older (2) than some that have been read (6) came"]),
        (None, [(5, 5), (6, 6), (7, 7)], []),
    ],
)
def test_what_is_taken_out_of_order_is_said_once(tmp_path, column, spans, said):
    found = run(tmp_path, spans, (column, False))
    assert len(found) == len(said)
    assert all(line.startswith(begin) for line, begin in zip(found, said, strict=True))
