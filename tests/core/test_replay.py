"""A replay is equal to what a job has recorded, however the stream was cut, and it finds each row that was changed."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.engine.eviction import eviction, shard_clock
from buckets.errors import BucketsError
from buckets.history import scoring
from buckets.history.replay import replay as replays
from buckets.history.replay.replay import replay_history
from buckets.history.replay.replayed import Replayed, RowDifference, differences
from buckets.lists.base import Entry
from buckets.lists.keys import KeyForm
from buckets.moment import TimeRange, moment_ms
from buckets.outputs.columns import EVALUATIONS, columns_of
from buckets.rules.change import RuleChange
from buckets.rules.renaming import renamed_rule
from buckets.rules.rule import Rule
from tests.core import alert_rules
from tests.core.alert_rules import SCHEMA
from tests.core.examples import SCHEMA as PAYMENT
from tests.core.examples import rule
from tests.core.recorded_job import OUTPUTS, RecordedJob
from tests.laws import examples

POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "cooldown": st.sampled_from(["1s", "7s"]),
        "reset_on_alert": st.just(True),
        "rollout": st.just("50%"),
        "require_warm": st.just(True),
    },
)
LISTED = Rule.model_validate(
    {
        "rule_id": "listed",
        "group_by": ["payer"],
        "features": {"listed": {"function": "count", "window": "5s", "where": "card IN LIST cards"}},
        "when": "listed > 0 OR payer IN LIST cards OR lookup(pairs, (payer, kind), 'known') = 'yes'",
    }
)
HABITS = Rule.model_validate(
    {
        "rule_id": "habits",
        "group_by": ["payer"],
        "features": {
            "received": {"function": "count", "window": "5s", "group_by": ["payer AS card"]},
            "usual": {"function": "avg", "of": {"function": "count", "every": "1s"}, "window": "5s"},
            "days": {"function": "max", "of": {"function": "sum", "of": "amount", "every": "1d"}, "window": "2d"},
            "moved": {"function": "sequence", "step_field": "kind", "steps": ["a", {"b": "n > 0"}], "window": "5s"},
            "alone_s": {
                "function": "absence",
                "steps": ["vip"],
                "without": "kind = 'b'",
                "within": "1s",
                "window": "9s",
            },
            "faded": {"function": "decayed_sum", "of": "amount", "half_life": "2s", "window": "5s"},
            "place": {"function": "rank", "of": "card", "window": "5s"},
            "spread": {"function": "entropy", "of": "kind", "window": "5s"},
        },
        "when": "received + usual > 2 OR days > 1 OR moved OR alone_s > 0 OR faded > 1 OR place > 1 OR spread > 0",
    }
)
WARNED = Rule.model_validate(
    {
        "rule_id": "warned",
        "group_by": ["card"],
        "features": {
            "warnings": {"on": "alerts", "function": "count", "window": "5s", "where": "alert_rule <> 'e0'"},
            "risk": {
                "on": "alerts",
                "function": "sum",
                "of": "alert_score",
                "window": "9s",
                "group_by": ["card AS payer"],
            },
        },
        "when": "warnings > 0 OR risk > 0",
    }
)
ALL = {"evaluations": True, "cuts": "recorded"}
NAMES = {"payer": "zz", "card": "a card", "kind": "sort", "amount": 'in "cents"', "n": "many", "id": "key", "t": "at"}


@st.composite
def rule_lists(draw, policies: bool = True) -> list[Rule]:
    """Rules over events and over alerts, over one group and over several, some with policies, and one with a list."""
    found = []
    for each in draw(alert_rules.rules()):
        chosen = draw(POLICIES) if policies and draw(st.booleans()) else {}
        if each.on == "alerts" or not each.is_short:
            chosen.pop("reset_on_alert", None)
        found.append(Rule.model_validate(each.model_dump(by_alias=True, mode="json") | chosen))
    return [*found, *draw(st.sampled_from([[], [LISTED], [HABITS], [LISTED, WARNED], [HABITS, WARNED]]))]


@st.composite
def steps(draw, policies: bool = True) -> list:
    """What happens to a job: batches of rows, other rules, cleared state, another list."""
    rows, found = draw(alert_rules.streams()), []
    found.append(("rules", draw(rule_lists(policies))))
    found.append(("list", draw(st.sets(st.sampled_from(["c", "p"])))))
    for batch in alert_rules.cut(rows, draw(st.lists(st.integers(0, 20), max_size=10))):
        # Rows of two partitions: within a batch those of the first come first.
        found.append(("batch", [row | {"source_order": draw(st.integers(0, 1))} for row in batch]))
        happens = draw(st.sampled_from(["nothing"] * 5 + ["rules", "clear", "clear_all", "list", "broken", "names"]))
        if happens == "rules":
            found.append(("rules", draw(rule_lists(policies))))
        elif happens == "list":
            found.append(("list", draw(st.sets(st.sampled_from(["c", "d", "p"])))))
        elif happens == "broken":
            found.append(("batch", [{"id": "broken", "t": "never", "position": 100 + len(found)}]))
        elif happens != "nothing":
            found.append((happens, None))
    return found


def use_lists(job: RecordedJob, cards: Iterable[str]) -> None:
    """Have other lists from the next batch on: of cards, and of a payer with the kind of a payment."""
    job.use_list("cards", {card: Entry() for card in cards})
    pairs = {f'["q","{kind}"]': Entry({"known": "yes"}) for card, kind in (("c", "a"), ("d", "b")) if card in cards}
    job.use_list("pairs", pairs, KeyForm(2))


def run(job: RecordedJob, happened: list) -> None:
    """Let a job live through all of it; its fields may get other names, and their old ones back."""
    names: dict[str, str] = {}
    for what, how in happened:
        if what == "names":
            job.rename({new: old for old, new in names.items()} or NAMES)
            names = {} if names else NAMES
        elif what == "rules":
            job.use([renamed_rule(rule, names) for rule in how])
        elif what == "list":
            use_lists(job, how)
        elif what == "batch":
            job.batch([{names.get(name, name): value for name, value in row.items()} for row in how])
        elif job.pipeline.rule_set.rules:
            kind = "clear_state" if what == "clear" else "clear_all_state"
            rule_id = job.pipeline.rule_set.rules[0].rule_id if what == "clear" else None
            job.change([RuleChange.model_validate({"change": kind, "rule_id": rule_id})], job.arrived)


@contextmanager
def lived(happened: list, **engine) -> Iterator[RecordedJob]:
    with TemporaryDirectory() as folder:
        job = RecordedJob(Path(folder), SCHEMA, **{"allowed_lateness": "1h", "shards": 3} | engine)
        run(job, happened)
        yield job


@contextmanager
def evicting():
    """Keys are evicted as soon as they may be: one key says how late it is."""
    with mock.patch.multiple(shard_clock, VOTERS=1, QUORUM=1), mock.patch.object(eviction, "SPARE_VISITS", 2):
        yield


def told(found: Replayed) -> list[str]:
    return [f"{each.kind} {each.output} {each.fields} {each.row}" for each in found.differences]


@given(st.permutations(range(4)))
def test_differences_come_in_one_order_whatever_came_out_first(order):
    rows = columns_of(EVALUATIONS, 2).empty_table()
    known = {
        "rule_id": pa.array(["b", "a", "b", "a"]),
        "event_id": pa.array(["e1", "e1", "e0", "e0"]),
        "event_time": pa.array([2, 2, 1, 1]).cast(rows.schema.field("event_time").type),
    }
    whole = pa.table([known.get(each.name, pa.nulls(4, each.type)) for each in rows.schema], schema=rows.schema)
    found = differences(EVALUATIONS, rows, whole.take(order))
    told_of = [(each.row["event_id"], each.row["rule_id"]) for each in found]
    assert told_of == [("e0", "a"), ("e0", "b"), ("e1", "a"), ("e1", "b")]


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(steps(), st.sampled_from(["0ms", "2s", "1h"]))
def test_as_it_was_cut_all_comes_out_again_to_the_last_digit(happened, lateness):
    with evicting(), lived(happened, allowed_lateness=lateness) as job:
        if job.archive.end():
            found = replay_history(job.history(), **ALL)
            assert told(found) == []
            assert found.compared[EVALUATIONS] == len(job.rows[EVALUATIONS])


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(steps(), st.integers(1, 30))
def test_joined_batches_say_the_same_where_nothing_is_evicted(happened, joined_rows):
    with mock.patch.object(scoring, "JOINED_ROWS", joined_rows), lived(happened) as job:
        if job.archive.end():
            assert told(replay_history(job.history(), evaluations=True, cuts="joined")) == []


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(steps(policies=False), st.integers(1, 30))
def test_joined_batches_say_the_same_of_what_is_warm(happened, joined_rows):
    """Rules over alerts see alerts that are not warm, so only rules over events keep this law."""
    with evicting(), lived(happened, allowed_lateness="0ms") as job:
        if job.archive.end():
            with mock.patch.object(scoring, "JOINED_ROWS", joined_rows):
                found = replay_history(job.history(), evaluations=True, cuts="joined")
            evaluated = [each for each in found.differences if each.output == EVALUATIONS]
            assert [each for each in evaluated if not each.is_cold and each.row["rule_id"].startswith("e")] == []
            assert replay_history(job.history(), evaluations=True, cuts="recorded").is_equal


# Rows that were changed


MINUTE_MS = 60_000
PAYMENTS = [
    {"id": f"e{n}", "at": n * MINUTE_MS, "payer": f"p{n % 2}", "amount": "60.00", "position": n} for n in range(12)
]


@pytest.fixture
def job(tmp_path) -> RecordedJob:
    """Three batches of payments, with an alert at each but the first two; the limit goes up with the last batch."""
    job = RecordedJob(tmp_path, PAYMENT, shards=2, allowed_lateness="1h")
    job.use([rule(), rule("shadow", state="SHADOW"), rule("quiet", cooldown="1h")])
    job.batch(PAYMENTS[:4])
    job.batch(PAYMENTS[4:8])
    job.use(
        [rule(limit={"operator": ">", "value": "200"}), rule("shadow", state="SHADOW"), rule("quiet", cooldown="1h")]
    )
    job.batch(PAYMENTS[8:])
    return job


def changed(job: RecordedJob, **wanted) -> list[tuple]:
    found = replay_history(job.history(), **wanted)
    assert found.is_equal == (not found.differences)
    return [(each.output, each.kind, each.fields, each.row["event_id"]) for each in found.differences]


def test_nothing_is_changed(job):
    found = replay_history(job.history())
    assert (found.cut_as, found.batches, found.events, found.is_equal) == ("recorded", 3, 12, True)
    assert found.compared == {output: len(job.rows[output]) for output in OUTPUTS if output != EVALUATIONS}
    assert min(found.compared.values()) > 0


def test_records_of_some_batches_are_those_of_no_others_by_whatever_names(job):
    some = job.recorded.since(1).until(1)
    for records in (some, some.under({"payer": "who"})):
        assert [cut.batch_id for cut in records.cuts] == [1]
        assert records.before is not None
        assert (records.before.batch_id, records.after) == (0, 2)


def test_a_field_of_an_alert_is_changed(job):
    job.rows["alerts"][3] |= {"value": Decimal("1.00000000"), "severity": "high"}
    event = job.rows["alerts"][3]["event_id"]
    assert changed(job) == [("alerts", "different", ("value", "severity"), event)]


def test_an_alert_is_gone_and_another_one_was_never_raised(job):
    gone, event = job.rows["held_alerts"].pop(0)["event_id"], job.rows["shadow_alerts"][0]["event_id"]
    job.rows["shadow_alerts"].append(job.rows["shadow_alerts"][0] | {"alert_id": "made up"})
    assert sorted(changed(job)) == [
        ("held_alerts", "replayed_only", (), gone),
        ("shadow_alerts", "recorded_only", (), event),
    ]


def test_a_row_that_is_recorded_twice_is_found(job):
    job.rows["alerts"].append(job.rows["alerts"][0])
    assert changed(job) == [("alerts", "recorded_only", (), job.rows["alerts"][0]["event_id"])]


@pytest.mark.parametrize("batch_id", [999, -5, None])
def test_a_row_of_a_batch_that_there_never_was_is_found(job, batch_id):
    row = job.rows["alerts"][0] | {"batch_id": batch_id, "alert_id": "made up"}
    job.rows["alerts"].append(row)
    assert changed(job) == [("alerts", "recorded_only", (), row["event_id"])]
    moved = job.rows["alerts"][1]
    moved |= {"batch_id": batch_id}
    kinds = sorted((kind, event) for _, kind, _, event in changed(job))
    once = [("recorded_only", moved["event_id"]), ("replayed_only", moved["event_id"])]
    assert kinds == sorted([("recorded_only", row["event_id"]), *once])


def test_an_arrival_is_gone(job):
    archive = DeltaTable(job.archive.table_path)
    archive.delete("id = 'e2'")
    found = changed(job)
    assert ("alerts", "recorded_only", (), "e2") in found
    assert {event for _, _, _, event in found} <= {f"e{n}" for n in range(2, 12, 2)}
    assert {"value", "lower", "upper"} < set(next(fields for _, kind, fields, _ in found if kind == "different"))


def test_only_alerts_of_the_time_asked_for_are_compared(job):
    for row in job.rows["alerts"]:
        row["rule"] = "changed"
    everything = changed(job)
    begin, end = (datetime.fromtimestamp(minute * 60, UTC) for minute in (5, 9))
    chosen = changed(job, times=TimeRange(moment_ms(begin), moment_ms(end)))
    assert chosen == [each for each in everything if 5 <= int(each[3][1:]) < 9]
    assert 0 < len(chosen) < len(everything)
    found = replay_history(job.history(), TimeRange(until_ms=3 * MINUTE_MS))
    assert (found.last_batch, found.events) == (0, 4)


def test_joined_batches_that_differ_are_scored_again_one_by_one(job):
    told = []
    job.rows["alerts"][0] |= {"warm": False}
    with mock.patch.object(replays, "FEW_BATCHES", 1):
        joined = replay_history(job.history(), cuts="joined")
        found = replay_history(job.history(), say=told.append)
    assert (joined.cut_as, joined.eviction, joined.is_equal) == ("joined", 1, True)
    assert (found.cut_as, found.eviction, found.is_equal) == ("recorded", 0, False)
    assert len(told) == 1


ON_ALERTS = rule("over", on="alerts", group_by=["alert_rule"])
RESETTING = rule("resetting", reset_on_alert=True)


@pytest.mark.parametrize(
    ("output", "of_rule", "key", "is_excused"),
    [
        ("alerts", rule("mine"), "k1", True),
        ("held_alerts", rule("mine"), "k1", True),  # by a cooldown that the alert would have begun
        (EVALUATIONS, rule("mine"), "k1", False),
        (EVALUATIONS, RESETTING, "k1", True),
        ("alerts", rule("mine"), "k2", False),
        (EVALUATIONS, ON_ALERTS, "k2", True),
        ("alerts", None, "k1", False),
    ],
)
def test_what_follows_from_a_key_that_was_evicted_otherwise_is_no_fault(output, of_rule, key, is_excused):
    rule_id = "mine" if of_rule is None else of_rule.rule_id
    found = Replayed("recorded", 0, 1, evicts_otherwise=True)
    cold = {"rule_id": "resetting" if of_rule is RESETTING else "mine", "key": "k1", "warm": False}
    warm = {"rule_id": rule_id, "event_id": "e1", "key": key, "warm": True}
    rows = [RowDifference(output, "recorded_only", (), warm, None)]
    rows += [RowDifference(EVALUATIONS, "different", ("warm",), cold | {"warm": True}, cold)]
    found.note(rows, lambda each: of_rule)
    assert (found.eviction, found.is_equal) == ((2, True) if is_excused else (1, False))


def test_an_alert_whose_window_was_not_complete_when_it_was_scored_again_is_no_fault():
    found = Replayed("recorded", 0, 1, evicts_otherwise=True)
    rows = [
        RowDifference(
            "alerts", "recorded_only", (), {"rule_id": "mine", "event_id": event, "key": event, "warm": True}, None
        )
        for event in ("e1", "e2")
    ]
    found.note(rows, lambda each: rule("mine"))
    assert found.missing == {("mine", "e1", "e1"), ("mine", "e2", "e2")}
    again = Replayed("recorded", 0, 1, evicts_otherwise=True, missing=found.missing)
    again.note_cold(pa.table({"rule_id": ["mine"] * 2, "event_id": ["e1", "e3"], "key": ["e1", "e3"]}))
    again.note(rows, lambda each: rule("mine"))
    assert (again.eviction, again.counts["recorded_only"]) == (1, 1)


def test_rows_of_no_batch_are_a_fault_also_where_they_say_that_a_window_was_not_complete():
    found = Replayed("joined", 0, 1, evicts_otherwise=True)
    row = {"rule_id": "mine", "event_id": "e1", "key": "k1", "warm": False}
    found.note_strangers([RowDifference("alerts", "recorded_only", (), row, None)])
    assert not found.is_equal


def test_in_joined_batches_the_batch_counts_before_the_partition(tmp_path):
    job = RecordedJob(tmp_path, PAYMENT, allowed_lateness="1h")
    job.use([rule(limit={"operator": ">", "value": "0"})])
    job.batch([PAYMENTS[0] | {"source_order": 1}])
    job.batch([PAYMENTS[2] | {"source_order": 0}])
    assert told(replay_history(job.history(), evaluations=True, cuts="joined")) == []
    assert len(job.rows["alerts"]) == 2


# What is missing


def test_without_all_that_was_scored_nothing_is_compared(job, tmp_path, as_worded):
    history = job.history()
    with pytest.raises(BucketsError, check=as_worded):
        replay_history(history, TimeRange(10**15))
    shutil.rmtree(tmp_path / "tables" / "held_alerts")
    with pytest.raises(BucketsError, check=as_worded):
        replay_history(history)


@pytest.mark.slow
def test_a_version_of_a_list_that_is_gone_is_named(tmp_path, as_worded):
    job = RecordedJob(tmp_path, SCHEMA)
    job.use([LISTED])
    use_lists(job, "c")
    job.batch([{"id": "e", "t": 0, "payer": "p", "card": "c", "amount": "1", "position": 1}])
    assert told(replay_history(job.history(), evaluations=True)) == []
    shutil.rmtree(tmp_path / "checkpoint" / "buckets" / "lists")
    with pytest.raises(BucketsError, check=as_worded):
        replay_history(job.history())


def test_an_empty_archive_says_so(tmp_path, as_worded):
    job = RecordedJob(tmp_path, PAYMENT)
    job.use([rule()])
    job.batch([])
    with pytest.raises(BucketsError, check=as_worded):
        replay_history(job.history())


def test_rows_that_are_of_no_rule_are_compared_too():
    row = {"event_id": "e", "key": "{}"}
    found = Replayed("joined", 0, 1, evicts_otherwise=True)
    differences = [RowDifference("side", "recorded_only", (), row | {"warm": warm}, None) for warm in (True, False)]
    found.note(differences, lambda each: None)
    assert (found.eviction, found.counts) == (1, {"recorded_only": 1})
