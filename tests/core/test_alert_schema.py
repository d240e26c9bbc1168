"""What a rule over alerts may say, and what its groups share with those of events: nothing."""

import json

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.arrivals import INGESTED
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.outputs import columns
from buckets.outputs.contract import schema_path
from buckets.outputs.messages import Messages
from buckets.resources import resource
from buckets.rules.change import RuleChange
from buckets.rules.completeness import Stretch
from buckets.rules.feature import ALERT_FIELDS
from buckets.rules.flink_message import check_against_schema
from buckets.rules.group import group_id
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet, next_rule_set
from tests.core.alert_rules import SCHEMA, rule_set
from tests.core.pipeline import Pipeline
from tests.docs.blocks import section

HOUR_MS = 3_600_000


def of_events(rule_id: str, aggregate: dict, limit: str) -> Rule:
    return Rule.model_validate(
        {
            "rule_id": rule_id,
            "group_by": ["payer"],
            "aggregate": aggregate,
            "window": {"length": "1h"},
            "limit": {"operator": ">", "value": limit},
            "score": 60,
            "severity": "high",
        }
    )


BIG = of_events("big", {"function": "sum", "measure": "amount"}, "100")
MANY = of_events("many", {"function": "count"}, "2")


def over_alerts(**changes) -> Rule:
    written = {
        "rule_id": "score",
        "on": "alerts",
        "group_by": ["card"],
        "aggregate": {"function": "sum", "measure": "alert_score"},
        "window": {"length": "24h"},
        "limit": {"operator": ">", "value": "100"},
    }
    return Rule.model_validate(written | changes)


TWO = over_alerts(
    rule_id="two",
    aggregate=None,
    window=None,
    limit=None,
    features={"rules": {"function": "count_distinct", "of": "alert_rule", "window": "24h"}},
    when="rules >= 2",
)
AGAIN = over_alerts(rule_id="again", aggregate={"function": "count"}, limit={"operator": ">", "value": 1})


def table(*rows) -> pa.Table:
    names = ("id", "t", "payer", "card", "amount")
    return pa.table({name: pa.array([row[at] for row in rows]) for at, name in enumerate(names)})


def test_two_rules_on_one_card_a_score_above_100_and_alerted_before():
    events = table(("e1", 0, "p", "c", "101"), ("e2", 1000, "p", "c", "1"), ("e3", 2000, "p", "c", "1"))
    results = buckets.Evaluator([BIG, MANY, TWO, over_alerts(), AGAIN], SCHEMA).recorded(events)
    found = [(row["event_id"], row["rule_id"], row["condition"]) for row in results.alerts.to_pylist()]
    assert [each for each in found if each[1] in ("two", "score", "again")] == [
        ("e2", "score", "The sum of alert_score over the last 24h (120) is above 100"),
        ("e2", "again", "The number over the last 24h (2) is above 1"),
        ("e3", "two", "rules (2) is at least 2"),
        ("e3", "score", "The sum of alert_score over the last 24h (180) is above 100"),
        ("e3", "score", "The sum of alert_score over the last 24h (240) is above 100"),
        ("e3", "again", "The number over the last 24h (3) is above 1"),
        ("e3", "again", "The number over the last 24h (4) is above 1"),
    ]
    assert len(set(results.alerts["alert_id"].to_pylist())) == len(found)
    event = json.loads(results.alerts["event"].to_pylist()[-1])
    assert (event["id"], event["alert_rule"], event["alert_severity"], event["alert_score"]) == (
        "e3",
        "many",
        "high",
        "60",
    )


def test_an_alert_without_a_field_that_a_rule_over_alerts_groups_by_is_left_out_of_that_rule_and_counted():
    by_payer = over_alerts(rule_id="by-payer", group_by=["payer"])
    results = buckets.evaluate(table(("e1", 0, "p", None, "101")), [BIG, over_alerts(), by_payer], SCHEMA)
    assert results.alerts["rule_id"].to_pylist() == ["big"]
    assert results.dead_letters.to_pylist() == []
    assert {row["rule_id"] for row in results.evaluations.to_pylist()} == {"big", "by-payer"}
    accounts = {account.group: (account.events_in, account.no_key) for account in results.account.groups}
    assert accounts == {"payer": (1, 0), "alerts by card": (1, 1), "alerts by payer": (1, 0)}


@pytest.mark.parametrize("name", ALERT_FIELDS)
def test_events_with_a_field_that_alerts_have_themselves_have_no_rules_over_alerts(name, as_worded):
    schema = SCHEMA.model_copy(update={"attributes": SCHEMA.attributes | {name: "string"}})
    assert check_against_schema(BIG, schema) is None
    location, reason = check_against_schema(over_alerts(), schema)
    assert location == ("on",)
    assert as_worded(reason)


def test_only_rules_over_alerts_know_the_fields_of_alerts(as_worded):
    location, reason = check_against_schema(BIG.model_copy(update={"group_by": ("alert_rule",)}), SCHEMA)
    assert location == ("group_by",)
    assert as_worded(reason)
    assert check_against_schema(over_alerts(group_by=["alert_rule", "id", "card"]), SCHEMA) is None
    location, reason = check_against_schema(over_alerts(group_by=["amount"]), SCHEMA)
    assert as_worded(reason)


def test_sentences_speak_of_alerts():
    assert (
        over_alerts().sentence() == "The sum of alert_score of alerts of the same card over the last 24h is above 100"
    )
    features = {"seen": {"function": "count", "window": "7d"}, "first": {"function": "is_first", "window": "7d"}}
    rule = over_alerts(aggregate=None, window=None, limit=None, features=features, when="seen > 1 OR first")
    assert rule.sentence() == (
        "For alerts of the same card: seen is above 1 or first is true; seen is the number of alerts over the last 7d; "
        "first is whether this is the first alert over the last 7d"
    )


def test_groups_of_alerts_are_apart_from_those_of_events_and_survive_being_written():
    same = over_alerts(group_by=["payer"])
    rules = rule_set([BIG, same])
    assert [group.group_id for group in rules.groups] == [group_id(["payer"], ())]
    assert [group.group_id for group in rules.alert_groups] == [group_id(["payer"], (), "alerts")]
    assert rules.over_alerts.groups == rules.alert_groups
    assert [rule.rule_id for rule in rules.over_alerts.rules] == ["score"]
    later = next_rule_set(rules, [BIG, same, over_alerts(rule_id="other")], (Stretch(0, HOUR_MS),), 1000)
    assert RuleSet.from_json(later.to_json()) == later
    payer, card = later.alert_groups
    assert payer.complete == {"": None, "alert_score": None}
    assert card.completeness()[0].since_ms == HOUR_MS + 1
    assert (payer.generation, card.generation) == (1, 2)


def test_fields_of_events_that_rules_over_alerts_name_are_read_but_may_be_null():
    rules = rule_set([BIG, over_alerts(where="kind = 'a' AND alert_severity = 'high'"), TWO])
    assert rules.needed_fields == {"payer", "amount"}
    assert rules.named_fields == {"payer", "amount", "card", "kind"}


@pytest.mark.parametrize("change", [{"change": "clear_state", "rule_id": "score"}, {"change": "clear_all_state"}])
def test_clearing_a_rule_over_alerts_begins_its_group_again(change):
    rules = rule_set([BIG, over_alerts(group_by=["payer"])])
    after = revise(rules, [RuleChange.model_validate(change)], SCHEMA, (Stretch(0, 5),), 0).rule_set
    assert [group.generation for group in after.alert_groups] == [2]
    assert [group.generation for group in after.groups] == [2 if change["change"] == "clear_all_state" else 1]


def test_messages_of_alerts_of_alerts_are_those_of_the_published_schema():
    rules, engine = rule_set([BIG, over_alerts(limit={"operator": ">", "value": 1}), TWO]), buckets.EngineSettings()
    job = InMemoryJob(Scorer(SCHEMA, engine, evaluations=True))
    events = table(("e1", 0, "p", "c", "101"))
    results = job.score_batch(table_arrivals(events, SCHEMA), rules)
    for output, name in ((columns.ALERTS, "alert"), (columns.EVALUATIONS, "evaluation")):
        rows = OutputDecoder(rules, SCHEMA, engine).table(output, results.payloads[output])
        schema = json.loads(schema_path(f"{name}-v2").read_text(encoding="utf-8"))
        found = [json.loads(message.value) for message in Messages(rules, SCHEMA).of(output, rows, 0)]
        assert {"big", "score"} <= {each["rule_id"] for each in found}
        for each in found:
            Draft202012Validator(schema | {"additionalProperties": False}).validate(each)


def test_an_old_rule_set_is_read_as_before():
    data = json.loads(rule_set([BIG]).to_json())
    assert all("on" not in rule for rule in data["rules"])
    assert RuleSet.from_json(json.dumps(data)).over_alerts is None


def test_a_schema_with_an_event_id_of_the_name_alert_id_is_refused_too():
    schema = EventSchema.model_validate(SCHEMA.model_dump() | {"event_id": "alert_id"})
    assert check_against_schema(over_alerts(), schema)[0] == ("on",)


def test_an_alert_of_an_alert_came_in_when_its_event_did():
    rules = rule_set([BIG, over_alerts(limit={"operator": ">", "value": 1})])
    job = InMemoryJob(Scorer(SCHEMA, buckets.EngineSettings(), evaluations=False))
    (rows,) = table_arrivals(table(("e1", 0, "p", "c", "101")), SCHEMA)
    found = job.score_batch([rows.append_column(INGESTED, pa.array([17], pa.int64()))], rules)
    alerts = OutputDecoder(rules, SCHEMA, buckets.EngineSettings()).table(columns.ALERTS, found.payloads["alerts"])
    assert alerts.select(["rule_id", INGESTED]).to_pylist() == [
        {"rule_id": "big", INGESTED: 17},
        {"rule_id": "score", INGESTED: 17},
    ]


def test_the_example_in_the_guide_fires_as_it_says(tmp_path):
    page = section("guides/rules-over-alerts.md", "# Count alerts")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "rules.yaml").write_text(example, encoding="utf-8")
    schema = buckets.load_event_schema(resource("schemas/transaction.yaml"))
    rules = buckets.load_rules(tmp_path / "rules.yaml", schema)
    rows = [
        {"transactionId": f"t{n}", "eventTime": n * 1000, "payerId": "p", "beneficiaryId": "b", "cardId": "c"}
        | {"paymentAmount": "5001" if n == 1 else "1"}
        for n in range(4)
    ]
    alerts = buckets.evaluate(pa.Table.from_pylist(rows), rules, schema).alerts.to_pylist()
    over_these = [(row["event_id"], row["rule_id"]) for row in alerts if row["rule_id"] not in ("large", "often")]
    assert over_these == [
        ("t2", "score-above-100"),
        ("t2", "alerted-before"),
        ("t3", "two-rules-on-one-card"),
        ("t3", "score-above-100"),
        ("t3", "score-above-100"),
        ("t3", "alerted-before"),
        ("t3", "alerted-before"),
    ]


def test_a_new_rule_over_alerts_is_warm_once_its_window_begins_after_what_had_arrived():
    first = rule_set([BIG])
    job = Pipeline(first, SCHEMA, allowed_lateness="1s")
    rows = [
        {"id": f"e{n}", "t": n * HOUR_MS, "payer": "p", "card": "c", "amount": "101", "position": n} for n in range(4)
    ]
    job.batch([rows[:1]])
    two_hours = over_alerts(window={"length": "2h"}, limit={"operator": ">", "value": 0})
    job.rule_set = next_rule_set(first, [BIG, two_hours], job.accounts[0].arrived, 1000)
    for row in rows[1:]:
        job.batch([[row]])
    found = [(row["event_id"], row["value"], row["warm"]) for row in job.output("alerts") if row["rule_id"] == "score"]
    assert found == [("e1", 60, False), ("e2", 120, False), ("e3", 180, True)]


def test_an_alert_with_which_a_sum_would_pass_64_bits_is_a_dead_letter_of_the_rules_over_alerts_alone(as_worded):
    most = "90000000000000000"
    of_amounts = over_alerts(aggregate={"function": "sum", "measure": "amount"})
    counted = of_events("counted", {"function": "count"}, "0")
    results = buckets.evaluate(
        table(("e1", 0, "p", "c", most), ("e2", 1, "p", "c", most)), [counted, of_amounts], SCHEMA
    )
    found = [(row["event_id"], row["rule_id"]) for row in results.alerts.to_pylist()]
    assert found == [("e1", "counted"), ("e1", "score"), ("e2", "counted")]
    (dead_letter,) = results.dead_letters.to_pylist()
    assert as_worded(dead_letter["reason"])
    assert json.loads(dead_letter["raw"])["alert_rule"] == "counted"
