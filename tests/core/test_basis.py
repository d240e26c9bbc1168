"""What may change under the state of a checkpoint, and is said once."""

import pytest

from buckets.events.schema import EventTime
from tests.core.checkpoints import basis, schema_with, with_attributes, with_measures, with_time, written_in
from tests.core.examples import SCHEMA

TAIL = {"tail": "2h"}
OVERRIDE = {"groups": [{"group_by": ["payer"], "tail": "5h"}]}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, TAIL),
        (TAIL, {}),
        (TAIL, TAIL | {"resolution": "5m"}),
        (TAIL, TAIL | {"tiers": [{"after": "2d", "resolution": "1h"}]}),
        (TAIL, TAIL | OVERRIDE),
        (TAIL | OVERRIDE, TAIL),
        (TAIL | OVERRIDE, {"tail": "3h", "groups": [{"group_by": ["payer"], "tail": "all"}]}),
    ],
    ids=["buckets come", "buckets go", "wider", "a tier", "a group apart", "a group no longer apart", "two"],
)
def test_a_precision_that_has_changed_is_said_once_and_the_checkpoint_goes_on(checkpoint, before, now, as_worded):
    identity = checkpoint.job.open(basis(precision=before))
    text = checkpoint.job.carried_over(basis(precision=now))
    assert as_worded(text)
    assert "\n" not in text
    assert checkpoint.job.open(basis(precision=now)) == identity
    assert checkpoint.job.carried_over(basis(precision=now)) is None


@pytest.mark.parametrize("precision", [{}, TAIL, TAIL | OVERRIDE], ids=["raw", "buckets", "a group apart"])
def test_a_precision_that_is_the_same_is_not_mentioned(checkpoint, precision):
    assert checkpoint.job.carried_over(basis(precision=precision)) is None
    checkpoint.job.open(basis(precision=precision))
    assert checkpoint.job.carried_over(basis(precision=precision)) is None


YEAR_2027, YEAR_2300 = "2027-01-01T00:00:00+00:00", "2300-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("other", "is_said"),
    [
        ({"schema": with_time(latest=YEAR_2027)}, True),
        ({"schema": with_time(latest=YEAR_2300)}, True),
        ({"schema": with_time(earliest=YEAR_2027)}, True),
        ({"schema": with_time(earliest="1800-01-01")}, True),
        ({"schema": with_time(earliest="1990-01-01", latest=YEAR_2027)}, True),
        ({"schema": with_time(latest="2200-01-01", unit="ms")}, False),
        ({"late": "drop"}, True),
        ({"nulls": "strict"}, True),
        ({"collision": "replace"}, True),
        ({"duplicates": {"by": "id", "within": "7d"}}, True),
        ({"schema": with_measures(amount={"scale": 2, "round": "half_even"})}, True),
        ({"precision": {"edge": "prorate"}}, True),
        ({"precision": {"groups": [{"group_by": ["payer"], "edge": "exclude"}]}}, True),
        ({"schema": with_attributes(country="string")}, True),
        ({"schema": with_measures(tip={"scale": 1})}, True),
        ({"schema": schema_with(name="other", version=2)}, False),
        ({"schema": schema_with(attributes=dict(reversed(SCHEMA.attributes.items())))}, False),
    ],
)
def test_what_does_not_touch_the_state_may_change_and_is_said_once(checkpoint, other, is_said, as_worded):
    identity = checkpoint.job.open(basis())
    assert checkpoint.job.carried_over(basis()) is None
    said = checkpoint.job.carried_over(basis(**other))
    assert (said is not None) == is_said
    assert said is None or as_worded(said)
    assert checkpoint.job.open(basis(**other)) == identity
    written = written_in(checkpoint.path / "buckets" / "job.json")
    assert written == basis(**other).to_json() | {"id": identity}
    assert checkpoint.job.carried_over(basis(**other)) is None


@pytest.mark.parametrize(
    ("before", "now", "fault"),
    [
        ({}, {"zone": "UTC"}, None),
        ({"zone": "UTC"}, {}, None),
        ({}, {"zone": "Europe/Berlin"}, "was made with event_time.zone UTC, not Europe/Berlin"),
        ({"unit": "us"}, {"unit": "ns"}, "was made with event_time.unit us, not ns"),
        ({"unit": "iso8601"}, {"format": "%d/%m/%Y"}, "was made with event_time.format none, not %d/%m/%Y"),
        ({"format": "%m/%d/%Y"}, {"format": "%d/%m/%Y"}, "was made with event_time.format %m/%d/%Y, not %d/%m/%Y"),
    ],
)
def test_how_times_are_written_must_stay_and_a_zone_that_means_the_same_may_be_written(before, now, fault):
    written, wanted = (
        basis(schema=SCHEMA.model_copy(update={"event_time": EventTime.model_validate({"field": "at"} | settings)}))
        for settings in (before, now)
    )
    found = wanted.conflict(written.to_json())
    assert found is None if fault is None else found.startswith(fault)
