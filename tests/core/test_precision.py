"""Settings of precision: what is refused and why, and what a group takes over from its job."""

import pytest
from hypothesis import given
from pydantic import ValidationError

from buckets.config.engine import EngineSettings, JobPrecision, Precision
from buckets.kernel.plan import plan_group
from buckets.rules.group import group_id
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import SCHEMA, rule
from tests.strategies import precisions

PAYER = group_id(["payer"], ())
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def tier(after: str, resolution: str) -> dict[str, str]:
    return {"after": after, "resolution": resolution}


def job(**written) -> JobPrecision:
    return JobPrecision.model_validate(written)


def test_without_settings_every_event_is_raw():
    precision = EngineSettings().precision.of_group(PAYER)
    assert (precision.tail, precision.tiers, precision.edge) == (None, (), "include")


def test_settings_are_read_as_they_are_written():
    precision = Precision.model_validate(
        {"tail": "1h", "resolution": "1m", "tiers": [tier("2d", "1h"), tier("7d", "24h")], "edge": "prorate"}
    )
    assert (precision.tail, precision.resolution, precision.edge) == (HOUR_MS, 60_000, "prorate")
    assert [(each.after, each.resolution) for each in precision.tiers] == [(2 * DAY_MS, HOUR_MS), (7 * DAY_MS, DAY_MS)]


@given(precisions())
def test_every_list_of_tiers_that_widen_by_multiples_is_taken(written):
    assert len(Precision.model_validate(written).tiers) == len(written["tiers"])


@pytest.mark.parametrize(
    "written",
    [
        {"tail": "1x"},
        {"tail": 5},
        {"tail": "9999d"},
        {"edge": "nearest"},
        {"width": "1m"},
        {"tail": "all", "tiers": [tier("2d", "1h")]},
        {"tiers": [tier("2d", "1h")]},
        {"tail": "1h", "resolution": "0ms"},
        {"tail": "1h", "resolution": "8d"},
        {"tail": "1h", "tiers": [tier("2h", "0ms")]},
        {"tail": "1h", "tiers": [tier("2h", "1h"), tier("3h", "169h")]},
        {"tail": "2h", "tiers": [tier("1h", "1h")]},
        {"tail": "1h", "tiers": [tier("1h", "1h")]},
        {"tail": "1h", "tiers": [tier("7d", "1h"), tier("2d", "24h")]},
        {"tail": "1h", "resolution": "7m", "tiers": [tier("2h", "1h")]},
        {"tail": "1h", "resolution": "1m", "tiers": [tier("2h", "1m")]},
        {"tail": "1h", "tiers": [tier("2h", "10m"), tier("3h", "5m")]},
    ],
)
def test_what_does_not_fit_together_is_refused(written, as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        Precision.model_validate(written)
    with pytest.raises(ValidationError, check=as_worded):
        job(groups=[{"group_by": ["payer"], **written}])


@pytest.mark.parametrize("resolution", ["1ms", "7d"])
def test_the_narrowest_and_the_widest_bucket_are_taken(resolution):
    assert Precision.model_validate({"tail": "0ms", "resolution": resolution}).tail == 0


@pytest.mark.parametrize("policy", [{"late": "evaluate"}, {"collision": "keep_first"}, {"collision": "replace"}])
def test_a_policy_that_needs_raw_events_needs_a_tail_as_long_as_the_allowed_lateness(policy, as_worded):
    short = {"tail": "5m", "resolution": "1m"}
    for precision in (short, {"groups": [{"group_by": ["payer"], **short}]}):
        with pytest.raises(ValidationError, check=as_worded):
            EngineSettings.model_validate({"allowed_lateness": "10m", "precision": precision, **policy})
        EngineSettings.model_validate({"allowed_lateness": "5m", "precision": precision, **policy})
        EngineSettings.model_validate({"allowed_lateness": "10m", "precision": precision})
    EngineSettings.model_validate({"allowed_lateness": "10m", **policy})


# Groups


def test_a_group_is_found_by_its_fields_in_any_order_and_its_filter():
    precision = job(
        tail="1h",
        groups=[
            {"group_by": ["kind", "payer"], "tail": "2h"},
            {"group_by": ["payer"], "where": {"kind": ["b", "a"]}, "tail": "3h"},
        ],
    )
    rules = [
        rule("a"),
        rule("b", group_by=["payer", "kind"]),
        rule("c", where={"kind": ["a", "b"]}),
        rule("d", where={"kind": "a"}),
    ]
    tails = {group.rules[0].rule_id: precision.of_group(group.group_id).tail for group in first_rule_set(rules).groups}
    assert tails == {"a": HOUR_MS, "b": 2 * HOUR_MS, "c": 3 * HOUR_MS, "d": HOUR_MS}


@pytest.mark.parametrize("mine", [{"fee": 100}, {"fee": "100.00"}, {"fee": ["1e2"]}])
@pytest.mark.parametrize("written", [{"fee": "100"}, {"fee": "+100.0"}])
def test_a_group_is_found_however_the_numbers_of_its_filter_are_written(mine, written):
    engine = {"precision": {"tail": "1h", "groups": [{"group_by": ["payer"], "where": written, "tail": "2h"}]}}
    groups = first_rule_set([rule("a", where=mine), rule("b", where={"fee": 10})]).groups
    plans = [plan_group(group, SCHEMA, EngineSettings.model_validate(engine)) for group in groups]
    assert [plan.tiers.after_ms.tolist() for plan in plans] == [[2 * HOUR_MS], [HOUR_MS]]


def test_a_group_takes_over_what_it_does_not_set():
    written = {"tail": "1h", "resolution": "5m", "tiers": [tier("2d", "1h")], "edge": "exclude"}
    for changes in ({}, {"tail": "2h"}, {"edge": "prorate"}, {"tiers": []}, {"resolution": "10m"}):
        precision = job(**written, groups=[{"group_by": ["payer"], **changes}]).of_group(PAYER)
        expected = Precision.model_validate(written | changes)
        assert all(getattr(precision, name) == getattr(expected, name) for name in Precision.model_fields)


def test_a_group_that_keeps_every_event_raw_takes_over_no_tiers():
    precision = job(
        tail="1h", tiers=[tier("2d", "1h")], edge="prorate", groups=[{"group_by": ["payer"], "tail": "all"}]
    )
    mine = precision.of_group(PAYER)
    assert (mine.tail, mine.tiers, mine.edge) == (None, (), "prorate")
    assert len(precision.of_group("another").tiers) == 1


def test_a_group_may_have_buckets_where_its_job_keeps_every_event_raw():
    precision = job(tail="all", resolution="5m", groups=[{"group_by": ["payer"], "tail": "1h"}])
    mine = precision.of_group(PAYER)
    assert (mine.tail, mine.resolution, precision.tail) == (HOUR_MS, 300_000, None)


def test_tiers_that_a_group_takes_over_have_to_fit_its_own_settings(as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        job(tail="1h", tiers=[tier("2d", "1h")], groups=[{"group_by": ["payer"], "tail": "3d"}])
    with pytest.raises(ValidationError, check=as_worded):
        job(tail="1h", tiers=[tier("2d", "1h")], groups=[{"group_by": ["payer"], "resolution": "7m"}])


def test_the_same_group_twice_is_refused(as_worded):
    groups = [{"group_by": ["payer", "kind"]}, {"group_by": ["payer"]}, {"group_by": ["kind", "payer"]}]
    with pytest.raises(ValidationError, check=as_worded):
        job(groups=groups)
    job(groups=[*groups[:2], {"group_by": ["payer"], "where": {"kind": "a"}}])


@pytest.mark.parametrize(
    "groups",
    [
        [{"tail": "1h"}],
        ["payer"],
        {"payer": {}},
        [{"group_by": ["payer"], "where": {"kind": {"like": "a"}}}],
        [{"group_by": ["payer"], "groups": []}],
    ],
)
def test_what_is_no_list_of_groups_is_refused(groups, as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        job(groups=groups)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({}, "every event raw"),
        ({"tail": "1h"}, "raw for 1h, then 1m buckets"),
        (
            {"tail": "1h", "tiers": [tier("2d", "1h"), tier("7d", "24h")]},
            "raw for 1h, then 1m buckets, after 2d 1h, after 7d 24h",
        ),
    ],
)
def test_a_setting_reads_as_english(written, words):
    assert Precision.model_validate(written).describe() == words
