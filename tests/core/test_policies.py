"""Alert policies: what comes out is what a loop over lists says, however the stream is cut, sharded or evicted."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.duration import format_duration
from buckets.engine.eviction import shard_clock
from buckets.engine.policies import PolicyEntry, is_in_share, read_entry
from buckets.errors import BucketsError
from buckets.outputs import columns
from buckets.rules.flink_message import check_against_schema, check_new
from buckets.rules.policies import RuleState
from buckets.rules.rule import POLICY_FIELDS, WHOLE_SHARE, Rule
from buckets.rules.rule_set import RuleSet, first_rule_set, next_rule_set
from tests.core.examples import SCHEMA as PAYMENTS
from tests.core.examples import rule, until, written_rule
from tests.core.pipeline import Pipeline
from tests.core.test_shard import cut, row_of
from tests.laws import examples
from tests.strategies import SCHEMA, cuts, streams

MAYBE = st.none() | st.integers()
OUTPUTS = (columns.ALERTS, columns.SHADOW_ALERTS, columns.HELD_ALERTS)
STARTS_MS = [-1_000, 0, 1_700_000_000_000]
FORMS = [
    {"aggregate": {"function": "count"}, "window": {"length": "20ms"}, "limit": {"operator": ">=", "value": "1"}},
    {
        "aggregate": {"function": "sum", "measure": "fee"},
        "window": {"length": "50ms"},
        "limit": {"operator": ">", "value": "0"},
    },
    {"features": {"n": {"function": "count", "window": "20ms"}}, "when": "n >= 1"},
    {
        "features": {
            "mine": {"function": "count", "window": "10ms"},
            "everybody": {"function": "count", "window": "50ms", "group_by": []},
        },
        "when": "mine >= 1 AND everybody >= 2",
    },
    {
        "features": {"everybody": {"function": "count", "window": "30ms", "group_by": []}},
        "when": "everybody >= 1",
    },
]
"""Of one aggregate, of features, and of features of several groups."""


def moment(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


@st.composite
def policies(draw, start_ms: int):
    """A policy around the beginning of a stream."""
    near = st.integers(start_ms - 20, start_ms + 150)
    found = {}
    if draw(st.booleans()):
        found["cooldown"] = format_duration(draw(st.sampled_from([1, 5, 30, 200, 100_000])))
    if draw(st.booleans()):
        found["require_warm"] = True
    if draw(st.booleans()):
        found["rollout"] = draw(st.sampled_from(["0.01%", "30%", "50%", "99.99%"]))
    if draw(st.integers(0, 3)) == 0:
        first, last = sorted([draw(near), draw(near) + 1])
        found["effective"] = {"from": moment(first), "until": moment(last + 1)}
    for _ in range(draw(st.integers(0, 2))):
        snooze = {"until": moment(draw(near)), "reason": "known"}
        snooze |= {"key": {"k": draw(st.sampled_from(["k0", "k1"]))}} if draw(st.booleans()) else {}
        snooze |= {"from": moment(draw(near))} if draw(st.booleans()) else {}
        found.setdefault("snoozes", []).append(snooze)
    return found


@st.composite
def cases(draw):
    """Rules with policies, and a stream of two keys with late and repeated events."""
    events = draw(streams(overflowing=False, max_size=60, nulls=False))
    start_ms = min((event.time_ms for event in events), default=0)
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=4))
    states = st.sampled_from(["ACTIVE", "ACTIVE", "SHADOW", "PAUSE"])
    rules = [
        Rule.model_validate(
            {"rule_id": f"r{index}", "group_by": ["k"], "state": draw(states), **form, **draw(policies(start_ms))}
        )
        for index, form in enumerate(forms)
    ]
    return rules, events, start_ms + draw(st.sampled_from([-1_000_000, 0, 10, 40]))


def run(rules, events, complete_ms, cuts=(), shards=1, backwards=False, late="evaluate") -> Pipeline:
    """The events under rules that are complete after a time."""
    rule_set = next_rule_set(RuleSet(0, (), (), {}), rules, until(complete_ms), lateness_ms=0)
    pipeline = Pipeline(rule_set, SCHEMA, shards=shards, allowed_lateness="100ms", late=late)
    for batch in cut([row_of(event, position) for position, event in enumerate(events, 1)], cuts):
        pipeline.batch([batch[: len(batch) // 2], batch[len(batch) // 2 :]], backwards)
    return pipeline


def without_policies(rules):
    return [Rule.model_validate(rule.model_dump(by_alias=True, exclude=set(POLICY_FIELDS))) for rule in rules]


def expected(rules, events, reference: Pipeline):
    """What comes out of evaluations: by output rows, as a loop over lists has them."""
    by_id, decided = {rule.rule_id: rule for rule in rules}, []
    window_ms = max((group.longest_window_ms for group in reference.rule_set.groups if group.fields), default=0)
    found = {output: [] for output in (*OUTPUTS, columns.EVALUATIONS)}
    for row in reference.output(columns.EVALUATIONS):
        rule, time_ms, key = by_id[row["rule_id"]], row["event_time"], json.loads(row["key"])
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
        if rule.effective is not None and not (rule.effective.start <= now < rule.effective.until):
            continue
        what = (row["position"], rule.rule_id, row["key"])
        found[columns.EVALUATIONS].append(what)
        if not row["fired"]:
            continue
        mine = json.loads(row["key"])["k"]
        clock_ms = max(each.time_ms for each in events[: row["position"]] if each.key == mine)
        before = [each for each in decided if each[:2] == (rule.rule_id, row["key"])]
        alerts = [index for index, each in enumerate(before) if each[3] is None]
        held_by = None
        if rule.require_warm and not row["warm"]:
            held_by = "warm"
        elif any(
            each.key in (None, key) and (each.start is None or each.start <= now) and now < each.until
            for each in rule.snoozes
        ):
            held_by = "snooze"
        elif rule.cooldown and any(time_ms < before[index][2] + rule.cooldown for index in alerts):
            held_by = "cooldown"
        decided.append((rule.rule_id, row["key"], time_ms, held_by))
        since = [each for each in before[max(alerts, default=-1) + 1 :] if each[3] != "forgotten"]
        ends_ms = [before[index][2] + rule.cooldown for index in alerts if rule.cooldown]
        if since and clock_ms > max([*ends_ms, *(each[2] for each in since)]) + window_ms:
            decided[:-1] = [(*each[:3], "forgotten") if each in since else each for each in decided[:-1]]
            since = []
        held_back = len(since)
        is_active = rule.state == "ACTIVE" and is_in_share(rule, row["key"])
        output = columns.ALERTS if is_active else columns.SHADOW_ALERTS
        state = "ACTIVE" if is_active else "SHADOW"
        more = (held_back, held_by, state) if held_by else (held_back,)
        found[columns.HELD_ALERTS if held_by else output].append((*what, *more))
    return {output: sorted(rows) for output, rows in found.items()}


def said(pipeline: Pipeline):
    """The same of what really came out."""
    names = dict.fromkeys(OUTPUTS, ("held_back",)) | {columns.EVALUATIONS: ()}
    names[columns.HELD_ALERTS] = ("held_back", "held_by", "state")
    return {
        output: sorted(
            tuple(row[name] for name in ("position", "rule_id", "key", *more)) for row in pipeline.output(output)
        )
        for output, more in names.items()
    }


@settings(max_examples=examples(60), deadline=None)
@given(cases(), cuts(), st.integers(1, 5), st.booleans(), st.sampled_from(["evaluate", "evaluate", "add"]))
def test_any_cut_and_any_shards_give_the_alerts_of_a_loop_over_lists(case, where, shards, backwards, late):
    rules, events, complete_ms = case
    every_one = range(len(events))
    reference = run(without_policies(rules), events, complete_ms, every_one, late=late)
    found = run(rules, events, complete_ms, where, shards, backwards, late)
    assert said(found) == expected(rules, events, reference)
    fired = sum(row["fired"] for row in found.output(columns.EVALUATIONS))
    rows = {output: found.output(output) for output in OUTPUTS}
    assert sum(map(len, rows.values())) == fired
    ids = [row["alert_id"] for output in OUTPUTS for row in rows[output]]
    assert len(set(ids)) == len(ids)
    for output in (columns.ALERTS, columns.HELD_ALERTS):
        counted = sum(getattr(group, output) for account in found.accounts for group in account.groups)
        assert counted == len(rows[output])
    check_cooldowns(rules, rows[columns.ALERTS] + rows[columns.SHADOW_ALERTS])


def check_cooldowns(rules, alerts) -> None:
    cooldown_ms = {rule.rule_id: rule.cooldown or 0 for rule in rules}
    for one, other in itertools.combinations(alerts, 2):
        if (one["rule_id"], one["key"]) == (other["rule_id"], other["key"]):
            assert abs(one["event_time"] - other["event_time"]) >= cooldown_ms[one["rule_id"]]


# What an alert says


def event(number: int, payer: str, at: int, **changes) -> dict:
    fields = {"id": f"e{number}", "at": at, "payer": payer, "kind": "a", "account": 7, "vip": "true"}
    return fields | {"amount": "500.00", "fee": 1, "position": number} | changes


def job(*rules: Rule, **engine) -> Pipeline:
    return Pipeline(first_rule_set(rules), PAYMENTS, **{"shards": 1, "allowed_lateness": "10ms"} | engine)


def test_an_alert_says_how_serious_it_is_and_how_many_were_held_back_before_it():
    one = job(rule(cooldown="1m", severity="high", tags=["cards", "aml"], score=40))
    for number, at in enumerate([0, 10, 59_999, 60_000, 60_001], 1):
        one.batch([[event(number, "p", at)]])
    names = ("event_id", "severity", "tags", "score", "held_back")
    alerts = [tuple(row[name] for name in names) for row in one.output(columns.ALERTS)]
    assert alerts == [("e1", "high", ["cards", "aml"], 40, 0), ("e4", "high", ["cards", "aml"], 40, 2)]
    held = [(row["event_id"], row["held_back"], row["held_by"], row["state"]) for row in one.output("held_alerts")]
    assert held == [("e2", 0, "cooldown", "ACTIVE"), ("e3", 1, "cooldown", "ACTIVE"), ("e5", 0, "cooldown", "ACTIVE")]


def test_a_rule_without_a_policy_says_so_and_leaves_no_state():
    one = job(rule())
    one.batch([[event(1, "p", 0), event(2, "p", 5)]])
    assert [(row["severity"], row["tags"], row["score"], row["held_back"]) for row in one.output("alerts")] == [
        (None, [], 0, 0)
    ] * 2
    assert one.stores[0].policies.data == {}
    assert one.stores[0].policies.reads == 0


def test_a_new_version_of_a_rule_goes_on_with_the_cooldown_of_the_old():
    first, second = rule(cooldown="1h"), rule(cooldown="1h", version=2, limit={"operator": ">", "value": "200"})
    one = job(first)
    one.batch([[event(1, "p", 0)]])
    one.rule_set = next_rule_set(one.rule_set, [second], until(0), lateness_ms=10)
    one.batch([[event(2, "p", 1_000)]])
    assert [row["event_id"] for row in one.output(columns.HELD_ALERTS)] == ["e2"]


def test_a_cleared_group_forgets_its_cooldowns():
    one = job(rule(cooldown="1h"))
    one.batch([[event(1, "p", 0)]])
    one.rule_set = next_rule_set(one.rule_set, one.rule_set.rules, until(0), 10, lambda group: True)
    one.batch([[event(2, "p", 1_000)]])
    assert [row["event_id"] for row in one.output(columns.ALERTS)] == ["e1", "e2"]


def test_a_snooze_counts_by_the_time_of_the_event_and_its_key_has_any_kind_of_field():
    key = {"account": "7", "vip": True}
    snooze = {"key": key, "from": moment(10), "until": moment(20), "reason": "a test of the shop"}
    one = job(rule(group_by=["vip", "account"], snoozes=[snooze]))
    one.batch([[event(at, "p", at) for at in (9, 10, 19, 20)] + [event(50, "p", 15, account=8)]])
    assert [row["event_id"] for row in one.output(columns.HELD_ALERTS)] == ["e10", "e19"]


# The share of keys


@given(st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_a_key_inside_a_share_is_inside_every_larger_one(rule_id, key):
    shares = ["0.01%", "1%", "10%", "20%", "50%", "99.99%", "100%"]
    inside = [is_in_share(rule(rule_id, rollout=share), json.dumps({"payer": key})) for share in shares]
    assert inside == sorted(inside)
    assert inside[-1]


def test_a_share_holds_about_so_many_keys_and_other_ones_for_other_rules():
    keys = [json.dumps({"payer": f"p{number}"}) for number in range(5_000)]
    chosen = [{key for key in keys if is_in_share(rule(name, rollout="10%"), key)} for name in ("a", "b")]
    assert all(400 < len(each) < 600 for each in chosen)
    assert len(chosen[0] & chosen[1]) < 120


def test_a_share_does_not_depend_on_the_order_in_which_rules_name_fields():
    written = {"rollout": "50%", "length": "1h"}
    orders = [["payer", "kind"], ["kind", "payer"]]
    found = []
    for group_by in orders:
        one = job(rule(group_by=group_by, **written))
        one.batch([[event(number, f"p{number}", number) for number in range(1, 40)]])
        found.append([row["event_id"] for row in one.output(columns.ALERTS)])
    assert found[0] == found[1]
    assert 5 < len(found[0]) < 35


# What is no time


@pytest.mark.parametrize("written", ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"])
def test_a_moment_outside_the_years_that_can_be_written_is_refused(written, as_worded):
    for policy in ({"effective": {"until": written}}, {"snoozes": [{"until": written, "reason": "known"}]}):
        with pytest.raises(ValueError, check=as_worded):
            rule(**policy)


# Eviction


@pytest.fixture
def one_voter():
    """The key that had an event last says how late it is."""
    with mock.patch.multiple(shard_clock, VOTERS=1, QUORUM=1):
        yield


FEATURES = {"features": {"n": {"function": "count", "window": "20ms"}}, "when": "n >= 1"}
EVERYBODY = {
    "features": {"n": {"function": "count", "window": "20ms", "group_by": []}, "m": FEATURES["features"]["n"]},
    "when": "n >= 1 AND m >= 1",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [{"window": {"length": "20ms"}}, FEATURES, EVERYBODY], ids=["aggregate", "features", "groups"]
)
@pytest.mark.usefixtures("one_voter")
def test_a_key_is_not_evicted_within_its_cooldown_and_goes_with_it(form):
    other_form = dict.fromkeys(("aggregate", "window", "limit") if "when" in form else ())
    quiet = Rule.model_validate(written_rule(cooldown="1s", **form, **other_form))
    one = job(quiet)
    one.batch([[event(1, "idle", 0)]])
    for number, at in enumerate(range(100, 1_000, 25), 100):
        one.batch([[event(number, "busy", at)]])
    one.batch([[event(2, "idle", 999)]])
    assert [row["event_id"] for row in one.output(columns.HELD_ALERTS) if "idle" in row["key"]] == ["e2"]
    for number, at in enumerate(range(1_100, 5_000, 10), 1_000):
        one.batch([[event(number, "busy", at)]])
    stores = [one.stores[0], one.driver.cross_group]
    assert all(key.endswith(b"busy") for store in stores for key in store.policies.data)
    assert sum(len(store.policies.data) for store in stores) == 1
    assert [key for key in one.stores[0].heads.data if key.endswith(b"idle")] == []
    check_cooldowns([quiet], one.output(columns.ALERTS))


@pytest.mark.usefixtures("one_voter")
def test_what_policies_remember_of_a_group_that_is_gone_goes_too():
    one = job(rule("a", cooldown="1s"), rule("b", group_by=["kind"]))
    one.batch([[event(1, "p", 0), event(2, "q", 0)]])
    assert len(one.stores[0].policies.data) == 2
    one.rule_set = next_rule_set(one.rule_set, [rule("b", group_by=["kind"])], until(0), lateness_ms=10)
    one.batch([[event(3, "p", 10)]])
    assert one.stores[0].policies.data == {}


# What is remembered


@given(
    st.integers(0, 10),
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(), st.builds(RuleState, MAYBE, st.integers(0), MAYBE, MAYBE)),
)
def test_what_is_remembered_is_read_as_it_was_written(generation, latest_ms, states):
    (group,) = first_rule_set([rule()]).groups
    entry = PolicyEntry(generation, latest_ms, states)
    expected = entry if generation == group.generation else None
    assert read_entry(entry.to_bytes(), group) == expected


def test_an_entry_is_written_back_byte_for_byte():
    (group,) = first_rule_set([rule()]).groups
    stored = '[1,1,1700000000000,{"a":[-5,2,null,7],"é":[null,0,3,null]}]'.encode()
    entry = read_entry(stored, group)
    assert entry.rules == {"a": RuleState(-5, 2, None, 7), "é": RuleState(reset_ms=3)}
    assert entry.to_bytes() == stored


def test_what_a_later_release_remembers_is_refused_in_one_line(as_worded):
    (group,) = first_rule_set([rule()]).groups
    with pytest.raises(BucketsError, check=as_worded) as error:
        read_entry(b"[2,1,0,{}]", group)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("began_ms", [-1_000, 0, 5_000])
def test_what_was_held_back_is_kept_until_the_cooldown_is_over_wherever_time_begins(began_ms):
    """A cooldown that ends at 1970-01-01 ends at the time 0, which is a time like any other."""
    state = RuleState(began_ms, held_back=2, held_ms=began_ms + 500)
    assert state.at(began_ms + 1_100, began_ms + 1_000, 100).held_back == 2
    assert state.at(began_ms + 1_101, began_ms + 1_000, 100).held_back == 0


# What a policy may not say

SNOOZE = {"until": "2027-01-01", "reason": "known"}
FAULTS = [
    ({"tags": [""]}, "tags.0: '' is empty, or begins or ends with a blank; write a word, as in cards"),
    ({"tags": ["a", "b\x1b"]}, "tags.1: holds U+001B, which cannot be seen; leave it out"),
    ({"tags": ["x" * 201]}, "tags.0: a tag has at most 200 characters, not 201; write a word, as in cards"),
    ({"snoozes": [SNOOZE | {"reason": "a\x00"}]}, "snoozes.0.reason: holds U+0000, which cannot be seen; leave it out"),
    ({"snoozes": [SNOOZE | {"author": "\x7f"}]}, "snoozes.0.author: holds U+007F, which cannot be seen; leave it out"),
    (
        {"snoozes": [SNOOZE, SNOOZE | {"key": {"payer": "p", "kind": "a"}}]},
        "snoozes.1.key: names payer, kind, and the rule groups by payer; name exactly these",
    ),
    (
        {"snoozes": [SNOOZE | {"key": {"payer": 17}}]},
        'snoozes.0.key: payer: 17 is not text; write "p-17"',
    ),
    (
        {"group_by": ["account"], "snoozes": [SNOOZE | {"key": {"account": "017"}}]},
        "snoozes.0.key: account: '017' is not a whole number of 64 bits; write 17",
    ),
    (
        {"group_by": ["vip"], "snoozes": [SNOOZE | {"key": {"vip": "yes"}}]},
        "snoozes.0.key: vip: 'yes' is not a boolean; write true or false",
    ),
    (
        {"group_by": [], "snoozes": [SNOOZE | {"key": {"payer": "p"}}]},
        "snoozes.0.key: names payer, and the rule groups by no field, so leave the key out; name exactly these",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), FAULTS)
def test_a_policy_that_does_not_fit_is_refused(changes, reason):
    written = rule(**changes)
    fault = check_new(written) or check_against_schema(written, PAYMENTS)
    assert fault is not None
    assert f"{'.'.join(fault[0])}: {fault[1]}" == reason


def test_python_has_the_alerts_that_were_held_back():
    import pyarrow as pa

    schema = buckets.EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "attributes": {"card": "string"}, "measures": {"amount": {"scale": 2}}}
    )
    quiet = Rule.model_validate(written_rule(group_by=["card"], cooldown="1m", limit={"operator": ">", "value": "0"}))
    events = pa.table({"id": ["a", "b"], "at": [0, 1_000], "card": ["c", "c"], "amount": ["1.00", "2.00"]})
    results = buckets.evaluate(events, [quiet], schema)
    assert results.alerts["event_id"].to_pylist() == ["a"]
    assert results.held_alerts.select(["event_id", "held_by"]).to_pylist() == [{"event_id": "b", "held_by": "cooldown"}]
    assert results.account.groups[0].held_alerts == 1


def test_all_keys_are_the_whole_share():
    assert rule().rollout == WHOLE_SHARE
    assert is_in_share(rule(), "{}")


@pytest.mark.slow
@pytest.mark.usefixtures("one_voter")
@pytest.mark.parametrize("policy", [{"cooldown": "1s"}, {"snoozes": [{"until": moment(600), "reason": "known"}]}])
@pytest.mark.parametrize("form", [{"window": {"length": "1s"}}, EVERYBODY], ids=["aggregate", "groups"])
def test_how_many_were_held_back_does_not_depend_on_when_a_key_was_evicted(form, policy):
    other_form = dict.fromkeys(("aggregate", "window", "limit") if "when" in form else ())
    said = Rule.model_validate(written_rule(**policy, **form, **other_form))
    idle = [event(number, "idle", at) for number, at in enumerate((0, 500, 590), 1)]
    busy = [event(number, f"busy {number % 3}", 10_000 + number * 10) for number in range(100, 500)]
    rows = [*idle, *busy, event(900, "idle", 60_000)]
    found = []
    for size in (len(rows), 50, 1):
        one = job(said)
        for start in range(0, len(rows), size):
            one.batch([rows[start : start + size]])
        found.append(
            [(row["event_id"], row["held_back"]) for row in one.output(columns.ALERTS) if "idle" in row["key"]]
        )
    assert found[0] == found[1] == found[2]
    assert found[0][-1] == ("e900", 0)
