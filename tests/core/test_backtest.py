"""A backtest raises what the job raised, a sweep what each rule alone would have, and its figures are plain counts."""

import itertools
import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.evaluation import first_version
from buckets.history.backtest.report import check_expectation, parse_expectation
from buckets.history.backtest.sweep import parse_sweeps, swept_rules
from tests.core.backtests import ENGINE, FORMS, SCHEMA, alerts, backtest, payments, pieces_of, rule, run
from tests.core.pipeline import Pipeline
from tests.core.test_shard import cut
from tests.laws import examples
from tests.strategies import cuts


def rows_of(tables):
    """The rows of tables, with their times in ms."""
    found = []
    for table in tables:
        for index, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
        found += table.to_pylist()
    return found


def in_order(rows):
    """Rows of alerts without the number of their arrival, in one order."""
    ordered = sorted(rows, key=lambda row: (row["rule_id"], row["position"], row["alert_id"]))
    return [{name: row[name] for name in row if name != "source_order"} for row in ordered]


@st.composite
def rule_sets(draw):
    """Rules of several forms and states, some with a policy, and one over alerts."""
    found = []
    for index, form in enumerate(draw(st.lists(st.sampled_from(range(len(FORMS))), min_size=1, max_size=4))):
        policy = {"state": draw(st.sampled_from(["ACTIVE", "ACTIVE", "SHADOW"]))}
        policy |= draw(st.sampled_from([{}, {"cooldown": "5ms"}, {"cooldown": "300ms"}, {"rollout": "50%"}]))
        policy |= {"reset_on_alert": True} if form < 3 and draw(st.booleans()) else {}
        found.append(rule(f"r{index}", form, **policy))
    found += [rule("over", 1, on="alerts", group_by=["card"])] if draw(st.booleans()) else []
    return found


def live_job(rules, rows, positions):
    job = Pipeline(first_version(rules, SCHEMA, backtest(rules).engine), SCHEMA, **ENGINE)
    for batch in cut(rows, positions):
        job.batch([batch])
    return job


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(rule_sets(), payments(), cuts(), st.integers(1, 60))
def test_a_backtest_of_the_rules_in_force_raises_the_live_alerts_to_the_digit(rules, rows, positions, size):
    assume(rows)
    job, asked = live_job(rules, rows, positions), backtest(rules)
    report = run(asked, rows, size)
    assert in_order(rows_of(alerts(pieces_of(asked, rows, size)))) == in_order(job.output("alerts"))
    for result in report.rules:
        output = "alerts" if result.state == "ACTIVE" else "shadow_alerts"
        mine = [row for row in job.output(output) if row["rule_id"] == result.rule_id]
        held = [
            row for row in job.output("held_alerts") if (row["rule_id"], row["state"]) == (result.rule_id, result.state)
        ]
        assert (result.figures.alerts, result.figures.held) == (len(mine), len(held))


SWEEPS = {
    0: {"limit": ["0", "1", "2.5", "4"], "window": ["5ms", "20ms", "90ms"], "cooldown": ["none", "1ms", "40ms"]},
    1: {"limit": ["1", "2", "3"], "window": ["1ms", "50ms"]},
    2: {"limit": ["-0.5", "1.5", "2"], "cooldown": ["7ms", "60ms"]},
    3: {"when.recent": ["-1", "2", "4"], "on_card.window": ["1ms", "30ms", "60ms"], "when.payments": ["1", "2"]},
    4: {"when.payments": ["1", "2", "3"], "payments.window": ["1ms", "10ms"]},
}


def changed(form, values):
    """A form with other values, written down by hand."""
    found = json.loads(json.dumps(FORMS[form]))
    for parameter, value in values.items():
        head, _, last = parameter.rpartition(".")
        if parameter == "limit":
            found["limit"]["value"] = value
        elif parameter == "window":
            found["window"]["length"] = value
        elif parameter == "cooldown":
            found |= {} if value == "none" else {"cooldown": value}
        elif head == "when":
            sign = {"recent": ">", "payments": ">="}[last]
            old = {("recent", 3): "2", ("payments", 3): "2", ("payments", 4): "3"}[last, form]
            found["when"] = found["when"].replace(f"{last} {sign} {old}", f"{last} {sign} {value}")
        else:
            found["features"][head]["window"] = value
    return found


@st.composite
def sweeps(draw):
    form = draw(st.sampled_from(list(SWEEPS)))
    names = draw(st.lists(st.sampled_from(list(SWEEPS[form])), min_size=1, max_size=3, unique=True))
    return form, {name: draw(st.lists(st.sampled_from(SWEEPS[form][name]), min_size=1, unique=True)) for name in names}


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(
    sweeps(),
    payments(),
    rule_sets(),
    st.sampled_from(["add", "evaluate", "drop"]),
    st.sampled_from(["0ms", "1ms", "5ms", "100ms"]),
    st.sampled_from(["100%", "40%"]),
)
def test_a_sweep_in_one_pass_equals_each_of_its_rules_alone(swept, rows, others, late, lateness, rollout):
    assume(rows)
    form, values = swept
    share = {"rollout": rollout}
    rules = [*others, rule("swept", form, **share)]
    texts = [f"swept.{name}={','.join(each)}" for name, each in values.items()]
    fraud = {row["id"]: None for row in rows[::3]}
    asked = {"settings": {"late": late, "allowed_lateness": lateness}, "confirmed": fraud}
    report = run(backtest(rules, swept=swept_rules(parse_sweeps(texts, rules), rules), **asked), rows)
    without = run(backtest(rules, **asked), rows)
    assert report.total == without.total
    assert [each.figures for each in report.rules] == [each.figures for each in without.rules]
    combinations = list(itertools.product(*values.values()))
    assert [variant.values for variant in report.variants] == combinations
    for variant, chosen in zip(report.variants, combinations, strict=True):
        alone = rule("swept", form, **changed(form, dict(zip(values, chosen, strict=True))), **share)
        found = run(backtest([alone], **asked), rows).rules[0].figures
        assert variant.figures == found
        assert variant.is_as_written == (alone == rules[-1])


@settings(max_examples=examples(12))
@given(payments())
def test_sweeps_of_two_rules_count_the_alerts_of_both_and_events_once(rows):
    assume(rows)
    rules = [rule("a"), rule("b", 1)]
    texts = ["a.limit=0,2", "b.window=1ms,50ms"]
    report = run(backtest(rules, swept=swept_rules(parse_sweeps(texts, rules), rules)), rows)
    for variant in report.variants:
        changes = {"limit": variant.values[0]}, {"window": variant.values[1]}
        both = [
            rule(name, form, **changed(form, each)) for form, (name, each) in enumerate(zip("ab", changes, strict=True))
        ]
        assert variant.figures == run(backtest(both), rows).total


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(rule_sets(), payments(), st.data())
def test_figures_are_those_of_plain_loops(rules, rows, data):
    assume(rows)
    times = [row["t"] for row in rows]
    span = data.draw(st.sampled_from([(None, None), (min(times), max(times)), (times[len(times) // 2], None)]))
    begin, end = min(times) if span[0] is None else span[0], max(times) + 1 if span[1] is None else span[1]
    assume(any(begin <= time < end for time in times))
    ids = sorted({row["id"] for row in rows})
    fraud = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    written = {each: Decimal(7) if index % 3 == 0 else None for index, each in enumerate(fraud)}
    report = run(backtest(rules, span=span, confirmed=written | {"nowhere": None}), rows)
    alerts = [row for row in live_job(rules, rows, []).output("alerts") if begin <= row["event_time"] < end]
    first = {}
    for index, row in enumerate(rows):
        first.setdefault((row["id"], row["t"]), (index, row))
    alerted = {(row["event_id"], row["event_time"]) for row in alerts}
    total, caught = report.total, {event for event in alerted if event[0] in fraud}
    inside = [event for event in first if event[0] in fraud and begin <= event[1] < end]
    assert report.arrivals == sum(begin <= time < end for time in times)
    assert (total.alerts, total.events) == (len(alerts), len(alerted))
    assert total.amount == sum(Decimal(first[event][1]["amount"]) for event in alerted)
    assert total.keys == len({tuple(sorted(json.loads(row["key"]).items())) for row in alerts})
    days = defaultdict(int)
    for row in alerts:
        days[row["event_time"] // DAY_MS] += 1
    assert {day: sum(of_day.values()) for day, of_day in report.days_with_alerts.items()} == days
    worth = {event: written.get(event[0]) or Decimal(row["amount"]) for event, (_, row) in first.items()}
    named = [event[0] for event in first]
    # What is written for an id is the amount of its first event.
    worth |= {e: Decimal(0) for i, e in enumerate(first) if written.get(e[0]) is not None and e[0] in named[:i]}
    group_by = {each.rule_id: each.group_by for each in rules}

    def follows(event):
        index, row = first[event]
        return any(
            alert["position"] - 1 < index
            and group_by[alert["rule_id"]]
            and json.loads(alert["key"]) == {name: row[name] for name in group_by[alert["rule_id"]]}
            for alert in alerts
        )

    after = [each for each in inside if each not in caught and follows(each)]
    found = total.fraud
    assert (found.confirmed, found.caught, found.after) == (len(inside), len(caught), len(after))
    assert found.fraud_of_alerted == (Fraction(len(caught), total.events) if total.events else None)
    assert found.caught_of_confirmed == (Fraction(len(caught), len(inside)) if inside else None)
    assert found.saved_amount == sum(worth[each] for each in [*caught, *after])
    assert report.unknown_fraud == 1


def write_alerts(folder, job):
    for name in ("alerts", "shadow_alerts"):
        rows = [row | {"key": json.loads(row["key"]), "event": json.loads(row["event"])} for row in job.output(name)]
        lines = [json.dumps({each: row[each] for each in NAMES}) for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


NAMES = ("rule_id", "event_id", "event_time", "key", "event")


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(rule_sets(), rule_sets(), payments(), st.sampled_from(["ACTIVE", "SHADOW"]))
def test_overlap_is_that_of_sets(tmp_path_factory, old, new, rows, state):
    assume(rows)
    folder = tmp_path_factory.mktemp("recorded")
    old = [*old, rule("gone", 0, state=state)]
    job, again = live_job(old, rows, []), live_job(new, rows, [])
    write_alerts(folder, job)
    report = run(backtest(new, recorded=folder), rows)

    def ids(of, rule_id=None, outputs=("alerts",)):
        found = (row for name in outputs for row in of.output(name) if rule_id in (None, row["rule_id"]))
        return {(row["event_id"], row["event_time"]) for row in found}

    def parts(overlap):
        return [{each.event for each in overlap.parts[name].samples} for name in ("only_a", "only_b", "both")]

    before, after = ids(job), ids(again)
    assert parts(report.overlap) == [before - after, after - before, before & after]
    for result in report.rules:
        output = "alerts" if result.state == "ACTIVE" else "shadow_alerts"
        before = ids(job, result.rule_id, ("alerts", "shadow_alerts"))
        after = ids(again, result.rule_id, (output,))
        assert parts(result.overlap) == [before - after, after - before, before & after]
    gone = {each.rule_id: len(ids(job, each.rule_id)) for each in old if each.rule_id not in {r.rule_id for r in new}}
    assert report.gone == {name: count for name, count in gone.items() if count}


def test_which_alerts_of_an_event_are_shown_does_not_depend_on_the_order_of_recorded_rows(tmp_path):
    row = {"id": "e1", "t": 1_700_000_000_000, "payer": "p1", "card": "c1", "amount": "9.00", "position": 1}
    job = live_job([rule("by-payer", 0, group_by=["payer"]), rule("by-card", 0, group_by=["card"])], [row], [])
    write_alerts(tmp_path, job)
    asked, recorded = backtest([rule("new", 0)], recorded=tmp_path), tmp_path / "alerts.jsonl"
    overlap = run(asked, [row]).overlap
    lines = recorded.read_text().splitlines(keepends=True)
    recorded.write_text("".join(reversed(lines)))
    assert len(lines) == 2
    assert run(asked, [row]).overlap == overlap


@settings(max_examples=examples(20))
@given(payments(), st.integers(0, 3), st.integers(0, 30))
def test_a_shorter_history_changes_nothing_of_rules_without_endless_policies(rows, form, longer_ms):
    assume(rows)
    rules = [rule("r", form), rule("other", 1)]
    begin = rows[len(rows) // 2]["t"]
    asked = backtest(rules, span=(begin, None))
    report = run(asked, rows)
    shorter = replace(asked, history_ms=50 + longer_ms)
    shorter.check()
    found = run(shorter, rows)
    assert found.total == report.total
    assert found.rules == report.rules
    tables = [alerts(pieces_of(each, rows)) for each in (asked, shorter)]
    inside = [[row for row in in_order(rows_of(found)) if row["event_time"] >= begin] for found in tables]
    assert inside[0] == inside[1]


def test_a_history_shorter_than_the_windows_is_refused_and_one_with_cooldowns_says_so(as_worded):
    rows = [{"id": "e1", "t": 1_000, "payer": "p", "card": "c", "amount": "1", "position": 1}]
    rules = [rule("r", cooldown="1h")]
    with pytest.raises(BucketsError, check=as_worded):
        backtest(rules, span=(1_000, None), history_ms=19)
    report = run(backtest(rules, span=(1_000, None), history_ms=20), rows)
    assert any("cooldowns, resets and rules over alerts" in note for note in report.notes)
    with pytest.raises(BucketsError, check=as_worded):
        backtest(rules, history_ms=20)


def test_nothing_in_the_range_is_one_line_and_no_alert_is_none(as_worded):
    rows = [{"id": "e1", "t": 1_000, "payer": "p", "card": "c", "amount": "1", "position": 1}]
    with pytest.raises(BucketsError, check=as_worded):
        run(backtest([rule("r")], span=(2_000, None)), rows)
    with pytest.raises(BucketsError, check=as_worded):
        run(backtest([rule("r")], span=(1_001, 1_002)), rows)
    with pytest.raises(BucketsError, check=as_worded):
        run(backtest([rule("r")]), [])
    report = run(backtest([rule("r")]), rows)
    assert (report.total.alerts, report.days_with_alerts) == (0, {})
    elsewhere = {"x1": None, "x2": Decimal(1)}
    with pytest.raises(BucketsError, check=as_worded):
        run(backtest([rule("r")], confirmed=elsewhere), rows)
    assert run(backtest([rule("r")], confirmed={"x1": None, "e1": None}), rows).unknown_fraud == 1
    with pytest.raises(BucketsError, check=as_worded):
        backtest([rule("r", state="DRAFT")])


def day_of(day, count, **changes):
    """Payments of a day, an hour apart."""
    return [
        {"id": f"d{day}-{n}", "t": day * DAY_MS + n * 3_600_000, "payer": "p", "card": "c", "amount": "5"} | changes
        for n in range(count)
    ]


def numbered(rows):
    return [row | {"position": position} for position, row in enumerate(rows, 1)]


@pytest.mark.slow
def test_a_wild_date_makes_no_figure_per_day_smaller():
    month = [row for day in range(20_000, 20_030) for row in day_of(day, 24)]
    wild = [*day_of(3, 1), *day_of(27_342, 1)]
    rules = [rule("r", limit={"operator": ">", "value": "0"})]
    plain, report = run(backtest(rules), numbered(month)), run(backtest(rules), numbered([*month, *wild]))
    assert (report.total.alerts, report.days) == (plain.total.alerts + 1, plain.days)
    assert plain.days == Fraction(29 * DAY_MS + 23 * 3_600_000 + 1, DAY_MS)
    assert any("figures per day are of 30.0 days of the 27,339.0" in note for note in report.notes)
    assert not any("figures per day" in note for note in plain.notes)
    outcome = check_expectation(parse_expectation("alerts < 23 per day", backtest(rules).known), report)
    assert not outcome.is_met


def test_a_day_without_events_in_an_asked_range_is_no_day():
    rows = numbered([*day_of(20_000, 24), *day_of(20_003, 12)])
    report = run(backtest([rule("r")], span=(20_000 * DAY_MS, 20_010 * DAY_MS)), rows)
    assert report.days == 2


def test_an_id_that_comes_at_two_times_is_two_events():
    rows = numbered([*day_of(20_000, 1, id="e", amount="6"), *day_of(20_001, 1, id="e", amount="99")])
    report = run(backtest([rule("r")], confirmed={"e": None}), rows)
    assert (report.total.events, report.total.amount) == (2, Decimal("105.00"))
    fraud = report.total.fraud
    assert (fraud.confirmed, fraud.caught, fraud.fraud_of_alerted, fraud.saved_amount) == (2, 2, 1, Decimal("105.00"))
    written = run(backtest([rule("r")], confirmed={"e": Decimal(7)}), rows)
    assert written.total.fraud.saved_amount == 7
