"""What else decides the results of a batch, also when it is run again under another configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.record_files import RecordFiles
from buckets.checkpoint.source_offsets import records_folder
from buckets.errors import BucketsError
from tests.core.checkpoints import (
    ONE,
    book_of,
    files,
    schema_with,
    terms,
    with_attributes,
    with_measures,
    with_time,
)
from tests.core.examples import SCHEMA
from tests.strategies import precisions

OTHER_TERMS = [
    terms(late="drop"),
    terms(collision="keep_first"),
    terms(duplicates={"by": "id", "within": "7d"}),
    terms(schema=with_measures(amount={"scale": 2, "round": "half_even"})),
    terms(nulls="strict"),
    terms(precision={"tail": "2h"}),
    terms(precision={"tail": "2h", "edge": "prorate"}),
    terms(precision={"groups": [{"group_by": ["payer"], "where": {"vip": True}, "tail": "5h"}]}),
    terms(evaluations=True),
    terms(schema=with_time(latest="2027-01-01")),
    terms(schema=with_attributes(country="string")),
    terms(schema=schema_with(attributes=dict(reversed(SCHEMA.attributes.items())))),
]


def begun(checkpoint: Checkpoint, batch_id: int, now: Terms) -> Terms:
    """Begin a batch, as a start of the job does; its terms."""
    found = checkpoint.batches.terms_for(batch_id, now)
    book_of(checkpoint, ONE).for_batch(batch_id)
    return found


@pytest.mark.parametrize("changed", OTHER_TERMS)
def test_a_batch_that_is_run_again_has_the_terms_it_was_begun_with_and_the_next_one_those_of_now(checkpoint, changed):
    before = terms()
    assert [begun(checkpoint, batch, before) for batch in range(3)] == [before] * 3
    for _ in range(2):
        assert begun(checkpoint, 2, changed).model_dump_json() == before.model_dump_json()
    assert [begun(checkpoint, batch, changed) for batch in (3, 4)] == [changed, changed]
    for again, expected in ((2, before), (3, changed), (4, changed)):
        assert begun(checkpoint, again, before).model_dump_json() == expected.model_dump_json()
    assert begun(checkpoint, 5, before) == before


def test_terms_of_a_later_release_are_one_line(checkpoint):
    begun(checkpoint, 0, terms())
    records, file = RecordFiles(checkpoint.path), next((records_folder(checkpoint.path) / "terms").iterdir())
    records.write(file, records.read(file, dict) | {"colour": "red"})
    with pytest.raises(BucketsError, match=r"of another release \(colour: unknown field\)") as refused:
        checkpoint.batches.all_terms()
    assert "\n" not in refused.value.message


def test_terms_are_written_when_they_change_and_before_the_batch_is_recorded(checkpoint):
    for batch, now in enumerate([terms(), terms(), terms(late="drop"), terms(late="drop"), terms()]):
        checkpoint.batches.terms_for(batch, now)
        assert checkpoint.batches.record(batch) is None
        begun(checkpoint, batch, now)
    assert {name for name in files(checkpoint) if "terms" in name} == {
        f"buckets/terms/{batch:09d}.json" for batch in (0, 2, 4)
    }


def test_a_start_that_died_between_terms_and_record_leaves_the_batch_to_the_terms_of_the_next(checkpoint):
    begun(checkpoint, 0, terms())
    checkpoint.batches.terms_for(1, terms(late="drop"))
    for now in (terms(late="evaluate"), terms()):
        assert checkpoint.batches.terms_for(1, now) == now
    assert begun(checkpoint, 1, terms()) == terms()
    assert begun(checkpoint, 1, terms(late="drop")) == terms()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"output": "delta"}, {"output": "kafka"}),
        ({"output": "kafka"}, {"output": "delta"}),
        ({"arrival": "seen"}, {"arrival": "id"}),
        ({"arrival": "seen"}, {}),
        ({"isolation": "read_uncommitted"}, {"isolation": "read_committed"}),
    ],
)
def test_a_batch_that_cannot_be_run_again_as_it_was_begun_is_refused_in_one_line(checkpoint, before, now, as_worded):
    begun(checkpoint, 3, terms(**before))
    for _ in range(2):
        with pytest.raises(BucketsError, check=as_worded):
            checkpoint.batches.terms_for(3, terms(**now))
    assert begun(checkpoint, 3, terms(**before)) == terms(**before)
    assert begun(checkpoint, 4, terms(**now)) == terms(**now)


def test_a_batch_that_began_without_an_isolation_is_run_again_whatever_there_is_now(checkpoint):
    begun(checkpoint, 3, terms(isolation=None))
    assert begun(checkpoint, 3, terms(isolation="read_committed")) == terms(isolation=None)


@given(precisions(), st.sampled_from(["add", "drop"]), st.booleans())
def test_terms_are_read_as_they_were_written(precision, late, evaluations):
    groups = [{"group_by": ["kind"], "where": {"amount": {">=": "5.00"}}, "edge": "exclude"}]
    written = terms(precision=precision | {"groups": groups}, late=late, evaluations=evaluations)
    assert Terms.model_validate_json(written.model_dump_json()) == written
