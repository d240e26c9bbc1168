"""State that is carried into a job of other settings: the job goes on as if it had always had them."""

from dataclasses import replace
from itertools import pairwise
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from buckets.engine.eviction import eviction, shard_clock
from buckets.engine.storage.key import encode_key, shards_of
from buckets.engine.storage.shard_store import DriverStores, head_keys, split_head_key
from buckets.events.derived_fields import renamed_sql
from buckets.expressions.parser import parse_expression
from buckets.outputs import columns
from buckets.rules.completeness import joined
from buckets.rules.group import Group
from buckets.rules.renaming import renamed_rule, renamed_rules
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet, first_rule_set, next_rule_set, with_lateness
from buckets.state_transfer.export_manifest import Regrouping
from buckets.state_transfer.shard_times import carried_state_keys, carried_stores
from tests.core import test_evicted_keys as evicted
from tests.core.examples import SCHEMA, rule, since, until, with_new_names, written_rule
from tests.core.pipeline import Pipeline
from tests.core.test_evicted_keys import CUTS, EVENTS, LAGS_MS, check, stream
from tests.laws import examples

NAMES = {"payer": "a0payer", "kind": "zzkind", "fee": "fee_x"}
SHARDS = st.sampled_from([1, 2, 3, 5])
RULES = [
    *evicted.RULES,
    rule("pairs", length="60ms", group_by=["payer", "kind"]),
    rule("sql", length="30ms", where="kind = 'a' AND coalesce(fee, 0) < 4"),
    Rule.model_validate(
        {
            "rule_id": "condition",
            "group_by": ["payer"],
            "cooldown": "20ms",
            "features": {
                "mine": {"function": "sum", "of": "fee", "window": "30ms", "where": "kind = 'a'"},
                "everybody": {"function": "count", "window": "50ms", "group_by": ["kind"]},
                "other": {"function": "count", "window": "50ms", "group_by": ["kind AS payer"]},
                "before": {"function": "previous", "of": "kind", "window": "40ms"},
                "often": {"function": "mode", "of": "kind", "window": "50ms", "where": "fee > 0"},
                "last_two": {"function": "sum", "of": "fee", "window": {"last": 2, "within": "50ms"}},
            },
            "when": "(mine >= 1 OR last_two > 1 OR before = often) AND everybody >= 2 - other AND payer <> 'p9'",
        }
    ),
    Rule.model_validate(
        {
            "rule_id": "habits",
            "group_by": ["payer"],
            "features": {
                "faded": {"function": "decayed_sum", "of": "fee", "half_life": "15ms", "window": "50ms"},
                "place": {"function": "rank", "of": "kind", "window": "40ms"},
                "spread": {"function": "entropy", "of": "kind", "window": "50ms", "where": "fee >= 0"},
                "usual": {"function": "avg", "of": {"function": "count", "every": "10ms"}, "window": "50ms"},
                "moved": {
                    "function": "sequence",
                    "step_field": "kind",
                    "steps": ["a", {"b": "fee > 0"}],
                    "window": "50ms",
                },
                "alone_s": {
                    "function": "absence",
                    "steps": ["kind = 'a'"],
                    "without": "kind = 'b' AND fee > 0",
                    "within": "5ms",
                    "window": "50ms",
                },
            },
            "when": "faded > 1 OR place > 1 OR spread > 0 OR usual >= 1 OR moved OR alone_s > 0",
        }
    ),
]


def renamed_rows(rows, names):
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def job_of(rules, schema=SCHEMA, lateness_ms: int = evicted.LATENESS_MS, **engine) -> Pipeline:
    return Pipeline(first_rule_set(rules), schema, allowed_lateness=f"{lateness_ms}ms", **engine)


def take(job: Pipeline, rows, cuts) -> Pipeline:
    """Take in rows, cut at some indexes."""
    ends = sorted({min(index, len(rows)) for index in cuts} | {0, len(rows)})
    for start, end in pairwise(ends):
        job.batch([rows[start:end]])
    return job


def carried(job: Pipeline, shards: int, lateness_ms: int | None = None, names=None) -> Pipeline:
    """A job that goes on from another one, with other shards, lateness, or names of fields."""
    engine, before, names = job.scorer.engine, job.rule_set, names or {}
    now_ms = engine.allowed_lateness if lateness_ms is None else lateness_ms
    schema = with_new_names(job.schema, names)
    renamed = renamed_rules(before, schema.new_names)
    arrived = joined(stretch for account in job.accounts for stretch in account.arrived)
    rule_set = with_lateness(renamed, before.version, arrived, engine.allowed_lateness, now_ms)
    policies = {"late": engine.late, "collision": engine.collision}
    found = job_of([], schema, now_ms, shards=shards, **policies)
    found.rule_set, found.found, found.accounts = rule_set, job.found, job.accounts
    into = Regrouping.of(rule_set, now_ms, engine.shards, shards)
    found.stores = carried_stores(job.stores, into)
    stores = vars(job.driver).values()
    found.driver = DriverStores(*(carried_stores({0: store}, into.on_driver())[0] for store in stores))
    return found


def layout(rule_set: RuleSet) -> list[Group]:
    """Groups and columns, whatever is complete of them."""
    return [replace(group, complete={}) for group in rule_set.groups]


def is_told_apart(job: Pipeline, positions, one_ms: int, other_ms: int) -> bool:
    """Whether a late event is too late, or too late to be evaluated, by one of two latenesses and not by the other."""
    reach_ms = {group.name: group.longest_window_ms for group in job.rule_set.groups}
    lates = [each for each in job.output(columns.LATE_EVENTS) if each["position"] in positions]
    late_by_ms = [each["clock"] - each["event_time"] for each in lates]
    beyond_ms = [by_ms - reach_ms[each["group"]] for by_ms, each in zip(late_by_ms, lates, strict=True)]
    if job.scorer.engine.late == "evaluate":
        beyond_ms += late_by_ms
    return any(min(one_ms, other_ms) < by_ms <= max(one_ms, other_ms) for by_ms in beyond_ms)


def warm_alerts(job: Pipeline) -> set[str]:
    """The alerts that are warm, and what became of them; with other names of fields, they have other ids."""
    outputs = ((output, row) for output in (columns.ALERTS, columns.HELD_ALERTS) for row in job.output(output))
    return {repr((output, row | {"alert_id": ""})) for output, row in outputs if row["warm"]}


def in_old_names(job: Pipeline, names) -> Pipeline:
    """The same results, as they would be without the new names."""

    def old(value):
        if isinstance(value, list):
            return [old(each) for each in value]
        for name, new in names.items():
            value = value.replace(new, name) if isinstance(value, str) else value
        return value

    job.found = {
        output: [{name: old(value) for name, value in row.items()} for row in rows]
        for output, rows in job.found.items()
    }
    return job


@settings(max_examples=examples(40))
@given(
    EVENTS,
    LAGS_MS,
    CUTS.filter(lambda cuts: cuts is not None),
    st.integers(0, 80),
    SHARDS,
    SHARDS,
    st.sampled_from([evicted.LATENESS_MS, 0, 25, 300]),
    st.sampled_from([{}, NAMES, {"payer": "a0payer"}, {"amount": "paid_x"}]),
    evicted.LATE,
    evicted.COLLISION,
)
def test_a_job_that_was_carried_over_and_back_goes_on_as_if_nothing_had_happened(
    events, lags_ms, cuts, at, shards, other_shards, lateness_ms, names, late, collision
):
    """Whatever says that it is warm is what a job says that was never stopped, and never had other settings.

    An event is too late, or too late to be evaluated, by the lateness of its time, though: streams with events over
    which the two jobs differ for that reason are left to `test_an_event_is_too_late_by_the_lateness_of_its_time`.
    """
    rows = stream(events, lags_ms)
    pieces = [rows[:at], rows[at : at + 30], rows[at + 30 :]]
    policies = {"late": late, "collision": collision}
    with mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2), mock.patch.object(eviction, "SPARE_VISITS", 100):
        job = take(job_of(RULES, shards=shards, **policies), pieces[0], cuts)
        there = take(carried(job, other_shards, lateness_ms, names), renamed_rows(pieces[1], names), cuts)
        back = carried(
            in_old_names(there, names), shards, evicted.LATENESS_MS, {new: old for old, new in names.items()}
        )
        assert layout(back.rule_set) == layout(job.rule_set)
        back = take(back, pieces[2], cuts)
    with mock.patch.object(shard_clock, "QUORUM", 10**9):
        never = take(job_of(RULES, shards=1, lateness_ms=evicted.LATENESS_MS, **policies), rows, [])
    carried_positions = {each["position"] for each in pieces[1]}
    assume(not is_told_apart(never, carried_positions, evicted.LATENESS_MS, lateness_ms))
    check(back, never)
    assert warm_alerts(back) <= warm_alerts(never)


@pytest.mark.parametrize(("lateness_ms", "late_by_ms"), [(0, 50), (0, 51), (25, 75), (25, 76)])
def test_an_event_is_too_late_by_the_lateness_of_its_time(lateness_ms, late_by_ms):
    (reach_ms,) = {each.longest_window_ms for each in first_rule_set([rule(length="50ms")]).groups}
    job = take(job_of([rule(length="50ms")]), [evicted.row(1, "p1", 100)], [])
    there = take(carried(job, 3, lateness_ms), [evicted.row(2, "p1", 100 - late_by_ms)], [])
    (late,) = there.output(columns.LATE_EVENTS)
    assert late["too_late"] == (late_by_ms > reach_ms + lateness_ms)
    assert late["applied"] == (not late["too_late"])


KEYS = st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), min_size=1, max_size=20, unique=True)


@settings(max_examples=examples(50))
@given(KEYS, st.sampled_from([{}, NAMES, {"kind": "zzkind"}]), SHARDS)
def test_a_key_that_is_carried_over_is_the_key_that_events_have_from_now_on(values, names, shards):
    before = first_rule_set([rule("pairs", group_by=["payer", "kind"])])
    (group,) = before.groups
    after = renamed_rules(before, names)
    (now,) = after.groups
    rows = [{"payer": payer, "kind": kind} for payer, kind in values]
    new_rows = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    into = Regrouping.of(after, 0, 4, shards)
    expected = [encode_key(map(row.get, now.key_fields)) for row in new_rows]
    found = carried_state_keys(
        head_keys(group.group_id, [encode_key(map(row.get, group.key_fields)) for row in rows]), into
    )
    keys = [each and split_head_key(each[1]) for each in found]
    assert keys == [(now.group_id, key) for key in expected]
    assert [each and each[0] for each in found] == shards_of(now, pa.array(expected), shards).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payer = 'payer' AND kind IN ('payer')", "new = 'payer' AND kind IN ('payer')"),
        ("`payer` = `a payer` OR payer IS NULL", "new = `a payer` OR new IS NULL"),
        ("payer IN LIST payer AND lookup(payer, payer, 'payer') > 1", None),
        ("(kind, payer) IN LIST payer", "(kind, new) IN LIST payer"),
        ("hour(payer) > payers - payer", "hour(new) > payers - new"),
        ("NOT (payer BETWEEN 1 AND payer % 3)", "NOT (new BETWEEN 1 AND new % 3)"),
    ],
)
def test_a_condition_with_other_names_is_written_as_it_was(text, expected):
    renamed = renamed_sql(text, {"payer": "new"})
    assert expected is None or renamed == expected
    fields = parse_expression(text).fields()
    assert [*parse_expression(renamed).fields()] == ["new" if field == "payer" else field for field in fields]
    tests = (parse_expression(written).list_tests() for written in (renamed, text))
    first, second = ([test.value for test in of_text] for of_text in tests)
    assert first == second


def test_a_name_that_is_no_word_is_written_in_backticks():
    assert renamed_sql("a > 1 AND `b``c` < a", {"a": "select", "b`c": "b c"}) == "`select` > 1 AND `b c` < `select`"
    arrays = "'X' IN items[].sku AND array_size(`items[].sku`) > 1"
    assert renamed_sql(arrays, {"items[].sku": "a[].b"}) == "'X' IN `a[].b` AND array_size(`a[].b`) > 1"


def test_a_rule_over_alerts_keeps_the_fields_of_alerts():
    over = rule(on="alerts", group_by=["payer", "alert_rule"], where={"alert_severity": "high"}, measure="alert_score")
    now = renamed_rule(over, {"payer": "p", "alert_score": "s", "alert_severity": "x"})
    assert (now.group_by, now.measure) == (("p", "alert_rule"), "alert_score")
    assert now.where == over.where


def test_snoozes_of_a_key_go_with_its_names():
    snooze = {"key": {"payer": "p1"}, "until": "2030-01-01T00:00:00Z", "reason": "known"}
    (renamed,) = renamed_rule(Rule.model_validate(written_rule(snoozes=[snooze])), {"payer": "p"}).snoozes
    assert renamed.key == {"p": "p1"}


def test_columns_of_rules_that_are_gone_keep_their_place_and_are_never_taken_for_others():
    first = first_rule_set([rule("sum", "fee"), rule("r", "amount")])
    gone = next_rule_set(first, [rule("r", "amount")], until(5), 0)
    there = renamed_rules(gone, {"amount": "charge", "fee": "fee_x"})
    (group,) = there.groups
    assert group.measures == ("fee", "charge")
    assert there.columns[group.group_id] == group.measures
    assert group.group_id == gone.groups[0].group_id


def test_with_a_greater_lateness_windows_are_complete_as_far_as_timelines_reach():
    before = first_rule_set([rule(length="40ms")])
    now = with_lateness(before, 2, until(1_000), 10, 25)
    assert since(now.groups[0]) == {"": 950, "amount": 950}
    assert with_lateness(before, 2, until(1_000), 25, 10).groups == before.groups
    assert with_lateness(before, 2, (), 10, 25).groups == before.groups
