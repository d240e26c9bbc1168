"""Both stages from rows to results, without Spark, against the oracle."""

import json
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.engine.batch.dead_letters import one_dead_letter_per_event, whole
from buckets.engine.storage.shard_store import strings_of
from buckets.events.arrivals import BROKEN, RAW
from buckets.numbers.fixed_point import to_scaled
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet, first_rule_set, next_rule_set
from tests.core.examples import SCHEMA as PAYMENTS
from tests.core.examples import rule, until
from tests.core.pipeline import Pipeline
from tests.core.real_messages import messages_of
from tests.laws import examples
from tests.oracle import Event, Oracle, Outcome
from tests.strategies import SCHEMA, rules, streams

MEASURES = {name: measure.scale for name, measure in SCHEMA.measures.items()}
POLICIES = st.fixed_dictionaries(
    {
        "allowed_lateness": st.sampled_from(["0ms", "3ms", "100ms"]),
        "late": st.sampled_from(["add", "evaluate", "drop"]),
        "collision": st.sampled_from(["keep", "keep_first", "replace"]),
    }
)
CUTS = st.lists(st.integers(0, 60), max_size=8)


@st.composite
def cases(draw, keys: int = 2, **shape):
    """Policies, and a stream with events of any lateness, of one or of several keys.

    They are so few that none is evicted; what eviction may change is in `test_evicted_keys`.
    """
    return draw(POLICIES), draw(st.one_of(streams(keys=1, **shape), streams(keys=keys, **shape)))


def lateness_ms(policies) -> int:
    return int(policies["allowed_lateness"].removesuffix("ms"))


def oracle_for(each, policies) -> Oracle:
    return Oracle(each, MEASURES, lateness_ms(policies), policies["late"], policies["collision"])


def row_of(event: Event, position: int) -> dict:
    amount, fee = event.values
    fields = {"id": event.event_id, "t": event.time_ms, "k": event.key, "amount": amount, "fee": fee}
    return fields | {"position": position, "raw": f"line {position}"}


def cut(rows, cuts):
    ends = sorted({min(index, len(rows)) for index in cuts} | {0, len(rows)})
    return [rows[start:end] for start, end in pairwise(ends)]


def run(each, rows, cuts=(), parts=(), shards=3, backwards=False, **policies) -> Pipeline:
    """Rows cut into micro-batches at `cuts`, each of them into record batches at `parts`."""
    pipeline = Pipeline(first_rule_set(each), SCHEMA, shards=shards, **policies)
    for batch in cut(rows, cuts):
        pipeline.batch(cut(batch, parts), backwards)
    return pipeline


def expected_rows(each, events, policies) -> dict[str, list[tuple]]:
    """What the oracle says, as rows of outputs."""
    oracle = oracle_for(each, policies)
    found: dict[str, list[tuple]] = {}
    states = {one.rule_id: one.state for one in each}

    def add(output: str, *row) -> None:
        found.setdefault(output, []).append(row)

    for position, event in enumerate(events, 1):
        outcome: Outcome = oracle.arrive(event)
        common = (position, event.event_id, json.dumps({"k": event.key}), event.time_ms)
        for rule_id, (value, count, fired) in outcome.results.items():
            add(columns.EVALUATIONS, *common, rule_id, value, count, fired)
            if fired:
                alerts = columns.ALERTS if states[rule_id] == "ACTIVE" else columns.SHADOW_ALERTS
                add(alerts, *common, rule_id, value, count)
        for _ in outcome.beyond:
            add(columns.DEAD_LETTERS, position)
        if outcome.outcome in ("late", "too_late"):
            row = (outcome.clock_ms, outcome.applied, outcome.outcome == "too_late", outcome.other_event_id)
            add(columns.LATE_EVENTS, *common, *row)
        elif outcome.outcome == "duplicate":
            add(columns.DUPLICATES, *common)
        elif outcome.outcome == "overflow":
            add(columns.DEAD_LETTERS, position)
        elif outcome.other_event_id is not None:
            add(columns.COLLISIONS, *common, outcome.applied, outcome.other_event_id)
    return found


COLUMNS = {
    columns.EVALUATIONS: ("rule_id", "value", "count", "fired"),
    columns.ALERTS: ("rule_id", "value", "count"),
    columns.SHADOW_ALERTS: ("rule_id", "value", "count"),
    columns.LATE_EVENTS: ("clock", "applied", "too_late", "other_event_id"),
    columns.DUPLICATES: (),
    columns.COLLISIONS: ("kept", "other_event_id"),
}


def found_rows(pipeline: Pipeline) -> dict[str, list[tuple]]:
    found = {}
    for output in pipeline.found:
        rows = pipeline.output(output)
        if output == columns.DEAD_LETTERS:
            found[output] = [(row["position"],) for row in rows]
            continue
        names = ("position", "event_id", "key", "event_time", *COLUMNS[output])
        found[output] = [tuple(row[name] for name in names) for row in rows]
    return found


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(rules(max_size=5), cases(max_size=40), CUTS, CUTS, st.integers(1, 5), st.booleans())
def test_what_comes_out_is_what_a_loop_over_a_list_finds(each, case, cuts, parts, shards, backwards):
    policies, events = case
    rows = [row_of(event, position) for position, event in enumerate(events, 1)]
    pipeline = run(each, rows, cuts, parts, shards, backwards, **policies)
    assert found_rows(pipeline) == expected_rows(each, events, policies)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(max_size=5), cases(keys=5, max_size=40), CUTS, CUTS, st.integers(1, 5))
def test_other_batches_and_other_shards_change_nothing(each, case, cuts, parts, shards):
    """All timelines are the same to the last byte."""
    policies, events = case
    rows = [row_of(event, position) for position, event in enumerate(events, 1)]
    whole = run(each, rows, shards=1, **policies)
    pieces = run(each, rows, cuts, parts, shards, **policies)
    for output in whole.found.keys() | pieces.found.keys():
        assert pieces.output(output) == whole.output(output)
    assert pieces.timelines == whole.timelines


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(max_size=4), streams(max_size=30), POLICIES, st.randoms(use_true_random=False))
def test_record_batches_of_a_micro_batch_are_put_in_arrival_order(each, events, policies, random):
    """Rows of three files in random record batches: files go by their order, then by name, then line by line."""
    files = [(0, "b"), (0, "c"), (1, "a")]
    chosen = sorted(random.choices(files, k=len(events)))
    numbered = enumerate(zip(events, chosen, strict=True), 1)
    rows = [row_of(event, at) | {"source_order": order, "source": source} for at, (event, (order, source)) in numbered]
    in_order = run(each, rows, **policies)
    parts: list[list[dict]] = [[], [], []]
    for row in random.sample(rows, len(rows)):
        parts[random.randrange(3)].append(row)
    shuffled = Pipeline(first_rule_set(each), SCHEMA, shards=3, **policies)
    shuffled.batch([part for part in parts if part])
    for output in in_order.found.keys() | shuffled.found.keys():
        assert shuffled.output(output) == in_order.output(output)
    assert shuffled.timelines == in_order.timelines


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(rules(max_size=5), cases(max_size=40), CUTS)
def test_every_event_of_every_group_is_accounted_for(each, case, cuts):
    policies, events = case
    rows = [row_of(event, position) for position, event in enumerate(events, 1)]
    pipeline = run(each, rows, cuts, **policies)
    expected = oracle_for(each, policies)
    outcomes = [expected.arrive(event) for event in events]
    names = {"evaluated": "evaluated", "late": "late", "too_late": "too_late", "duplicates": "duplicate",
             "collisions_not_kept": "collision_not_kept", "dead_letters": "overflow"}  # fmt: skip
    for name, outcome in names.items():
        counted = sum(getattr(account.groups[0], name) for account in pipeline.accounts)
        assert counted == sum(each.outcome == outcome for each in outcomes)
    assert sum(account.events_in for account in pipeline.accounts) == len(events)
    alerts = sum(account.groups[0].alerts for account in pipeline.accounts)
    assert alerts == len(pipeline.found.get(columns.ALERTS, []))


def payment(event_id: str, at: int, position: int, **fields) -> dict:
    row = {"id": event_id, "at": at, "payer": "p", "kind": "a", "account": 1, "vip": "true", "amount": "1.00", "fee": 2}
    return row | {"position": position} | fields


def test_a_sum_beyond_64_bits_makes_a_dead_letter_and_leaves_the_timeline_as_it_was():
    pipeline = Pipeline(first_rule_set([rule(measure="fee")]), PAYMENTS)
    pipeline.batch([[payment("a", 1, 1, fee=2**63 - 1)]])
    before = dict(pipeline.timelines)
    pipeline.batch([[payment("b", 2, 2, fee=1, raw="line 2")]])
    (dead_letter,) = pipeline.output(columns.DEAD_LETTERS)
    assert dead_letter["position"] == 2
    reason = "fee: with this event the sum of rule 'r' would pass 64 bits, so group 'payer' leaves it out"
    assert dead_letter["reason"] == reason
    assert json.loads(dead_letter["raw"])["id"] == "b"
    assert pipeline.timelines == before
    assert pipeline.accounts[1].groups[0].dead_letters == 1


def test_a_dead_letter_says_all_that_has_no_result_and_a_rule_on_trial_takes_no_event_from_others():
    rules = [
        rule("in force", "fee"),
        rule("on trial", "fee", "2h", state="SHADOW"),
        rule("trial average", state="SHADOW", length="2h", aggregate={"function": "avg", "measure": "fee"}),
        rule("elsewhere", "fee", "2h", group_by=["kind"]),
    ]
    pipeline = Pipeline(first_rule_set(rules), PAYMENTS)
    pipeline.batch([[payment("a", 1, 1, fee=2**63 - 1), payment("b", 3_600_002, 2, fee=1)]])
    dead_letters = pipeline.output(columns.DEAD_LETTERS)
    consequences = {
        "'elsewhere'": "group 'kind' leaves it out",
        "'on trial'": "this rule, which is on trial, has no result for it",
        "'trial average'": "this rule, which is on trial, has no result for it",
    }
    reasons = [
        f"fee: with this event the sum of rule {rule_id} would pass 64 bits, so {consequence}"
        for rule_id, consequence in consequences.items()
    ]
    assert sorted(dead_letter["reason"] for dead_letter in dead_letters) == reasons
    (joined,) = one_dead_letter_per_event(pa.Table.from_pylist(dead_letters, columns.DEAD_LETTER_COLUMNS)).to_pylist()
    assert joined == dead_letters[0] | {"reason": "; ".join(reasons)}
    evaluated = {row["rule_id"]: row["value"] for row in pipeline.output(columns.EVALUATIONS) if row["position"] == 2}
    assert evaluated == {"in force": 1}
    assert [(group.evaluated, group.dead_letters) for group in pipeline.accounts[0].groups] == [(2, 0), (1, 1)]


def test_ids_that_come_in_several_pieces_are_all_read():
    """Arrow cuts a column of text into pieces where it has more than 2 GB."""
    pieces = [["a", "é"], [], ["", "ccc"], ["d"]]
    column = pa.chunked_array([pa.array(["x", *piece], pa.string()).slice(1) for piece in pieces])
    ids = strings_of(column)
    texts = [ids.data[start:end].tobytes().decode() for start, end in pairwise(ids.start.tolist())]
    assert texts == [text for piece in pieces for text in piece]
    assert strings_of(pa.chunked_array([], pa.string())).start.tolist() == [0]


def test_a_column_in_several_pieces_is_not_taken_for_its_first():
    """Whole dictionaries are joined; what cannot be is refused."""
    column = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"]).dictionary_encode()])
    assert whole(column).to_pylist() == ["a", "b", "b", "c"]


def test_an_alert_says_what_fired_on_which_event():
    pipeline = Pipeline(first_rule_set([rule("big", version=3, group_by=["payer", "account"])]), PAYMENTS)
    pipeline.batch([[payment("a", 1000, 7, amount="60.00"), payment("b", 2000, 8, amount="40.01")]])
    (alert,) = pipeline.output(columns.ALERTS)
    expected = {
        "rule_id": "big",
        "rule_version": 3,
        "ruleset_version": 1,
        "rule": "The sum of amount of events of the same payer and the same account over the last 1h is above 100",
        "event_id": "b",
        "event_time": 2000,
        "value": Decimal("100.01"),
        "lower": Decimal("100.01"),
        "upper": Decimal("100.01"),
        "exact": True,
        "certain": True,
        "warm": True,
        "count": 2,
        "operator": ">",
        "limit": "100",
        "window_start": 2000 - 3_600_000,
        "window_end": 2000,
        "source": "file",
        "source_order": 0,
        "position": 8,
    }
    assert {name: alert[name] for name in expected} == expected
    assert list(json.loads(alert["key"]).items()) == [("payer", "p"), ("account", 1)]
    assert json.loads(alert["event"]) == {
        "id": "b", "at": 2000, "payer": "p", "kind": "a", "account": 1, "vip": True, "amount": "40.01", "fee": "2",
    }  # fmt: skip


IDENTITIES_OF_ALERTS = ("rule_id", "rule_version", "key", "event_id", "event_time")


@pytest.mark.slow
@given(rules(), cases(), CUTS, st.integers(1, 4), st.integers(1, 4))
def test_every_row_has_an_identity_of_its_own_which_no_cut_changes(each, case, cuts, shards, ids):
    """Few ids, so that many events have the id of another at another time."""
    policies, events = case
    few = [event._replace(event_id=f"e{int(event.event_id[1:]) % ids}") for event in events]
    rows = [row_of(event, position) for position, event in enumerate(few, 1)]
    whole = messages_of(run(each, rows, **policies))
    parts = messages_of(run(each, rows, cuts, shards=shards, **policies))
    for output, messages in whole.items():
        identities = [message.identity for message in messages]
        assert sorted(identities) == sorted(message.identity for message in parts[output])
        if output in (columns.ALERTS, columns.SHADOW_ALERTS, columns.HELD_ALERTS):
            said = [json.loads(message.value) for message in messages]
            about = [json.dumps([alert[name] for name in IDENTITIES_OF_ALERTS]) for alert in said]
            assert len(set(identities)) == len(set(about)) == len(set(zip(identities, about, strict=True)))
            assert policies["collision"] == "replace" or len(set(about)) == len(about)
        elif output != columns.DEAD_LETTERS:  # of which an event has one for each rule here; a decoder joins them
            assert len(set(identities)) == len(identities)


def test_events_that_an_arrival_column_puts_at_one_position_have_identities_of_their_own():
    pipeline = Pipeline(first_rule_set([rule()]), PAYMENTS)
    pipeline.batch([[payment(name, at, 7) for at in (5, 1) for name in "ab"]])
    pipeline.batch([[{RAW: name, BROKEN: "broken", "position": 7} for name in "ab"]])
    found = {output: [each.identity for each in messages] for output, messages in messages_of(pipeline).items()}
    assert {output: len(set(each)) for output, each in found.items() if each} == {
        columns.EVALUATIONS: 2, columns.LATE_EVENTS: 2, columns.COLLISIONS: 1, columns.DEAD_LETTERS: 2,
    }  # fmt: skip


def test_the_identity_of_an_alert_is_the_same_in_every_run_and_differs_by_rule_version_key_and_event():
    def identities(**changes) -> list[str]:
        pipeline = Pipeline(first_rule_set([rule(limit={"operator": ">", "value": "0"}, **changes)]), PAYMENTS)
        pipeline.batch([[payment("a", 1000, 1), payment("b", 2000, 2), payment("a", 1000, 3, payer="q")]])
        pipeline.batch([[payment("a", 3000, 4)]])
        return [alert["alert_id"] for alert in pipeline.output(columns.ALERTS)]

    first = identities()
    assert first == identities()
    assert first[0] == "2c5e59580e810caa898bf59d830385e7"
    assert len({*first, *identities(version=2), *identities(rule_id="other")}) == 12


def test_a_key_is_read_once_and_written_only_when_it_changed():
    pipeline = Pipeline(first_rule_set([rule()]), PAYMENTS, shards=1)
    pipeline.batch([[payment("a", 1, 1), payment("b", 2, 2)], [payment("c", 3, 3), payment("d", 3, 4, payer="q")]])
    heads, pages = pipeline.stores[0].heads, pipeline.stores[0].pages
    assert (heads.reads, heads.writes) == (2, 2)
    pipeline.batch([[payment("a", 1, 5), payment("e", 4, 6, payer="q")]])
    assert (heads.reads, heads.writes) == (4, 3)
    assert (pages.reads, pages.writes) == (0, 0)


def test_groups_keep_their_timelines_apart():
    both = [rule("a"), rule("b", group_by=["kind"]), rule("c", where={"kind": "a"}), rule("d", group_by=[])]
    pipeline = Pipeline(first_rule_set(both), PAYMENTS, shards=1)
    pipeline.batch([[payment("a", 1, 1, payer="x", kind="x"), payment("b", 2, 2, payer="x", kind="a")]])
    assert {(row["event_id"], row["rule_id"]): row["count"] for row in pipeline.output(columns.EVALUATIONS)} == {
        ("a", "a"): 1, ("a", "b"): 1, ("a", "d"): 1,
        ("b", "a"): 2, ("b", "b"): 1, ("b", "c"): 1, ("b", "d"): 2,
    }  # fmt: skip


def test_results_are_cold_until_the_window_lies_after_the_rules_first_event():
    before = first_rule_set([rule("old", length="10s")])
    after = next_rule_set(before, [rule("old", length="10s"), rule("new", "fee", length="2s")], until(5000), 0)
    pipeline = Pipeline(before, PAYMENTS, allowed_lateness="0ms")
    pipeline.batch([[payment("a", 5000, 1)]])
    pipeline.rule_set = after
    pipeline.batch([[payment(f"e{at}", at, at) for at in (5001, 7000, 7001, 7002)]])
    warm = {(row["event_id"], row["rule_id"]): row["warm"] for row in pipeline.output(columns.EVALUATIONS)}
    assert [warm[f"e{at}", "new"] for at in (5001, 7000, 7001, 7002)] == [False, False, True, True]
    assert [warm[f"e{at}", "old"] for at in (5001, 7000, 7001, 7002)] == [True] * 4


def test_a_rule_on_a_measure_that_is_new_leaves_the_old_ones_exact():
    before = first_rule_set([rule("amounts")])
    after = next_rule_set(before, [rule("fees", "fee"), rule("amounts")], until(1), 0)
    pipeline = Pipeline(before, PAYMENTS)
    pipeline.batch([[payment("a", 1, 1, amount="5.00", fee=7)]])
    pipeline.rule_set = after
    pipeline.batch([[payment("b", 2, 2, amount="6.00", fee=8)]])
    values = {(row["event_id"], row["rule_id"]): row["value"] for row in pipeline.output(columns.EVALUATIONS)}
    assert values == {("a", "amounts"): 5, ("b", "amounts"): 11, ("b", "fees"): 8}


def test_a_group_that_comes_back_begins_anew():
    versions: list[RuleSet] = [first_rule_set([rule("amounts"), rule("fees", "fee")])]
    for number, each in enumerate(([rule("other", group_by=["kind"])], [rule("fees", "fee")]), 1):
        versions.append(next_rule_set(versions[-1], each, until(number), 0))
    pipeline = Pipeline(versions[0], PAYMENTS)
    for number, version in enumerate(versions):
        pipeline.rule_set = version
        pipeline.batch([[payment(f"e{number}", 1 + number, 1 + number, amount="100.00", fee=3)]])
    values = {(row["event_id"], row["rule_id"]): row["value"] for row in pipeline.output(columns.EVALUATIONS)}
    assert values["e2", "fees"] == 3


def test_one_version_number_of_two_histories_is_not_one_plan():
    """Two jobs in one process: the same rules in version 2, whose columns stand in a different order."""
    rules_now = [rule("amounts"), rule("fees", "fee")]
    for first in ([rule("amounts")], [rule("fees", "fee")]):
        rule_set = next_rule_set(first_rule_set(first), rules_now, until(0), 0)
        pipeline = Pipeline(rule_set, PAYMENTS)
        pipeline.batch([[payment("a", 1, 1, amount="5.00", fee=7)]])
        values = {row["rule_id"]: row["value"] for row in pipeline.output(columns.EVALUATIONS)}
        assert values == {"amounts": 5, "fees": 7}


def test_rows_that_are_no_events_pass_by_and_are_counted_in_every_group():
    both = [rule("a"), rule("b", group_by=["kind"], where={"kind": "a"})]
    pipeline = Pipeline(first_rule_set(both), PAYMENTS)
    rows = [payment("a", 1, 1, kind="b"), payment("b", 2, 2, amount="x"), payment("c", 3, 3)]
    pipeline.batch([rows])
    (account,) = pipeline.accounts
    assert (account.events_in, account.malformed, account.latest_ms) == (3, 1, 3)
    assert [(g.filtered, g.evaluated, g.dead_letters) for g in account.groups] == [(0, 2, 1), (1, 1, 1)]
    assert [row["position"] for row in pipeline.output(columns.DEAD_LETTERS)] == [2]


def test_scaled_values_in_results_have_the_scale_of_their_measure():
    each = [rule("s"), rule("a", aggregate={"function": "avg", "measure": "fee"}), rule("c", measure=None)]
    pipeline = Pipeline(first_rule_set(each), PAYMENTS)
    pipeline.batch([[payment("a", 1, 1, fee=1), payment("b", 1, 2, fee=1), payment("c", 1, 3, fee=2)]])
    values = {row["rule_id"]: row["value"] for row in pipeline.output(columns.EVALUATIONS) if row["event_id"] == "c"}
    assert values == {"s": Decimal("3.00"), "a": Decimal("1.333333"), "c": 3}
    assert to_scaled(str(values["s"]), 2) == 300
