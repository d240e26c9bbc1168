"""What may change under the state of a checkpoint, and is said once."""

import pytest

from tests.core.checkpoints import basis, change_job, schema_with, with_attributes, with_measures, with_time, written_in
from tests.core.examples import SCHEMA

TAIL = {"tail": "2h"}
RAW, COARSE = "every event raw", "raw for 2h, then 1m buckets"
OVERRIDE = {"groups": [{"group_by": ["payer"], "tail": "5h"}]}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, TAIL, f"(all groups: {RAW} until now, {COARSE} from now on)"),
        (TAIL, {}, f"(all groups: {COARSE} until now, {RAW} from now on)"),
        (TAIL, TAIL | {"resolution": "5m"}, f"{COARSE} until now, raw for 2h, then 5m buckets from now on"),
        (
            TAIL,
            TAIL | {"tiers": [{"after": "2d", "resolution": "1h"}]},
            f"{COARSE} until now, {COARSE}, after 2d 1h from now on",
        ),
        (TAIL, TAIL | OVERRIDE, "(payer: as all groups until now, raw for 5h, then 1m buckets from now on)"),
        (TAIL | OVERRIDE, TAIL, "(payer: raw for 5h, then 1m buckets until now, as all groups from now on)"),
        (
            TAIL | OVERRIDE,
            {"tail": "3h", "groups": [{"group_by": ["payer"], "tail": "all"}]},
            f"(all groups: {COARSE} until now, raw for 3h, then 1m buckets from now on; "
            f"payer: raw for 5h, then 1m buckets until now, {RAW} from now on)",
        ),
    ],
    ids=["buckets come", "buckets go", "wider", "a tier", "a group apart", "a group no longer apart", "two"],
)
def test_a_precision_that_has_changed_is_said_once_and_the_checkpoint_goes_on(checkpoint, before, now, said):
    identity = checkpoint.job.open(basis(precision=before))
    text = checkpoint.job.carried_over(basis(precision=now))
    assert text.startswith("precision has changed (")
    assert said in text
    assert "\n" not in text
    assert checkpoint.job.open(basis(precision=now)) == identity
    assert checkpoint.job.carried_over(basis(precision=now)) is None


@pytest.mark.parametrize("precision", [{}, TAIL, TAIL | OVERRIDE], ids=["raw", "buckets", "a group apart"])
def test_a_precision_that_is_the_same_is_not_mentioned(checkpoint, precision):
    assert checkpoint.job.carried_over(basis(precision=precision)) is None
    checkpoint.job.open(basis(precision=precision))
    assert checkpoint.job.carried_over(basis(precision=precision)) is None


def test_a_checkpoint_from_before_precision_could_be_set_holds_raw_events(checkpoint):
    checkpoint.job.open(basis())
    change_job(checkpoint, precision=None)
    assert checkpoint.job.carried_over(basis()) is None
    assert f"all groups: {RAW} until now, {COARSE} from now on" in checkpoint.job.carried_over(basis(precision=TAIL))


YEAR_2027, YEAR_2300 = "2027-01-01T00:00:00+00:00", "2300-01-01T00:00:00+00:00"
FIRST, LAST = "1900-01-01T00:00:00+00:00", "2200-01-01T00:00:00+00:00"


def taken_now(bound: str, before: str, now: str) -> str:
    return (
        f"event_time.{bound} has changed ({before} until now, {now} from now on); events that have been taken already "
        "stay"
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"schema": with_time(latest=YEAR_2027)}, taken_now("latest", LAST, YEAR_2027)),
        ({"schema": with_time(latest=YEAR_2300)}, taken_now("latest", LAST, YEAR_2300)),
        ({"schema": with_time(earliest=YEAR_2027)}, taken_now("earliest", FIRST, YEAR_2027)),
        ({"schema": with_time(earliest="1800-01-01")}, taken_now("earliest", FIRST, "1800-01-01T00:00:00")),
        (
            {"schema": with_time(earliest="1990-01-01", latest=YEAR_2027)},
            f"{taken_now('earliest', FIRST, '1990-01-01T00:00:00')}; {taken_now('latest', LAST, YEAR_2027)}",
        ),
        ({"schema": with_time(latest="2200-01-01", unit="ms")}, None),
        ({"late": "drop"}, "engine.late has changed (add until now, drop from now on)"),
        ({"nulls": "strict"}, "engine.nulls has changed (leave_out until now, strict from now on)"),
        ({"collision": "replace"}, "engine.collision has changed (keep until now, replace from now on)"),
        (
            {"precision": {"edge": "prorate"}},
            "engine.precision.edge has changed (include until now, prorate from now on)",
        ),
        (
            {"precision": {"groups": [{"group_by": ["payer"], "edge": "exclude"}]}},
            f"precision has changed (payer: as all groups until now, {RAW} from now on); what lies in buckets stays as "
            "coarse as it is, and bounds take it so; "
            "engine.precision.edge of group payer has changed (include until now, exclude from now on)",
        ),
        (
            {"schema": with_attributes(country="string")},
            "the event schema has a field more, country as a string attribute",
        ),
        (
            {"schema": with_measures(tip={"scale": 1})},
            "the event schema has a field more, tip as a measure of scale 1",
        ),
        ({"schema": schema_with(name="other", version=2)}, None),
        ({"schema": schema_with(attributes=dict(reversed(SCHEMA.attributes.items())))}, None),
    ],
)
def test_what_does_not_touch_the_state_may_change_and_is_said_once(checkpoint, other, said):
    identity = checkpoint.job.open(basis())
    assert checkpoint.job.carried_over(basis()) is None
    assert checkpoint.job.carried_over(basis(**other)) == said
    assert checkpoint.job.open(basis(**other)) == identity
    written = written_in(checkpoint.path / "buckets" / "job.json")
    assert written == basis(**other).to_json() | {"id": identity}
    assert checkpoint.job.carried_over(basis(**other)) is None


def test_a_release_that_did_not_write_what_is_done_with_nulls_was_strict(checkpoint):
    checkpoint.job.open(basis())
    before = basis().to_json()["policies"]
    change_job(checkpoint, policies={name: value for name, value in before.items() if name != "engine.nulls"})
    assert checkpoint.job.carried_over(basis(nulls="strict")) is None
    said = "engine.nulls has changed (strict until now, leave_out from now on)"
    assert checkpoint.job.carried_over(basis()) == said


def test_policies_that_an_earlier_release_did_not_write_are_not_said_to_have_changed(checkpoint):
    checkpoint.job.open(basis())
    change_job(checkpoint, policies=None)
    assert checkpoint.job.carried_over(basis(late="drop")) is None
    checkpoint.job.open(basis(late="drop"))
    assert checkpoint.job.carried_over(basis(late="add")) == "engine.late has changed (drop until now, add from now on)"
