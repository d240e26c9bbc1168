"""Flink's fraud detection demo without Flink: its rules, a stream like that of its generator, and loops over lists."""

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

import buckets
from buckets.resources import resource
from buckets.rules.rule import Rule

RULES_FILE = resource("conf/flink-demo-rules.json")
SCHEMA = buckets.load_event_schema(resource("schemas/flink-demo-transaction.yaml"))
START_MS = 1_600_000_000_000
PEOPLE = 100_000
"""Payers, and as many beneficiaries."""
BENEFICIARY_LIMIT, PAIR_LIMIT = Decimal(10_000_000), Decimal(20_000_000)


class Transaction(NamedTuple):
    """One payment, as the demo writes it."""

    transactionId: int
    eventTime: int
    payeeId: int
    beneficiaryId: int
    paymentAmount: str
    paymentType: str


def transactions(seed: int, count: int, a_second: int = 10, people: int = PEOPLE) -> Iterator[Transaction]:
    """Payments of 5.00 to 19.99 between random people, in the order of their times.

    Every 8 to 13 s one of them is of 10 to 11 million, every 12 to 22 s one of 20 to 21 million: where the demo takes
    these times from its clock, here they are event times. Cards pay if the id is even, cash if it is odd.
    """
    rng = random.Random(seed)
    now_ms = START_MS
    last_ms = {BENEFICIARY_LIMIT: now_ms, PAIR_LIMIT: now_ms}
    for _ in range(count):
        now_ms += rng.randrange(0, 2_000 // a_second)
        number = rng.randrange(2**63)
        amount = Decimal(rng.randrange(500, 2_000)).scaleb(-2)
        for limit, least_ms, spread_ms in ((BENEFICIARY_LIMIT, 8_000, 5_000), (PAIR_LIMIT, 12_000, 10_000)):
            if now_ms - last_ms[limit] > least_ms + rng.randrange(spread_ms):
                amount, last_ms[limit] = limit + rng.randrange(1_000_000), now_ms
        kind = ("CRD", "CSH")[number % 2]
        yield Transaction(number, now_ms, rng.randrange(people), rng.randrange(people), str(amount), kind)


def disordered(stream: list[Transaction], seed: int, most_ms: int) -> list[Transaction]:
    """The same payments in an order of arrival in which none is overtaken by one that is `most_ms` younger."""
    rng = random.Random(seed)
    return sorted(stream, key=lambda each: each.eventTime + rng.randrange(most_ms))


class Alert(NamedTuple):
    """An alert: by which rule, at which payment, at which value."""

    rule_id: str
    transaction: int
    value: Decimal


def alerts_of(results: buckets.Results) -> list[Alert]:
    """The alerts among results."""
    return [Alert(row["rule_id"], int(row["event_id"]), row["value"]) for row in results.alerts.to_pylist()]


def table_of(stream: list[Transaction]) -> pa.Table:
    """Payments as a table of events."""
    rows = [each._asdict() | {"transactionId": str(each.transactionId)} for each in stream]
    return pa.Table.from_pylist(rows)


COMPARE = {
    "EQUAL": lambda a, b: a == b,
    "NOT_EQUAL": lambda a, b: a != b,
    "GREATER_EQUAL": lambda a, b: a >= b,
    "LESS_EQUAL": lambda a, b: a <= b,
    "GREATER": lambda a, b: a > b,
    "LESS": lambda a, b: a < b,
}


class Loop:
    """A rule of the demo as its texts describe it: a list of payments for each key, and a loop over the list."""

    def __init__(self, written: dict[str, Any]) -> None:
        """Evaluate a rule, as it is written in the demo's JSON."""
        self.rule = written
        self.arrived: dict[tuple[Any, ...], list[Transaction]] = {}
        self.reset_ms: dict[tuple[Any, ...], int] = {}

    def arrive(self, each: Transaction) -> Decimal | None:
        """Take in a payment; the value if it is an alert."""
        rule = self.rule
        key = tuple(getattr(each, name) for name in rule["groupingKeyNames"])
        arrived = self.arrived.setdefault(key, [])
        arrived.append(each)
        after_ms = self.reset_ms.get(key)
        if rule["ruleState"] != "ACTIVE" or (after_ms is not None and each.eventTime <= after_ms):
            return None
        start_ms = each.eventTime - int(rule["windowMinutes"]) * 60_000
        window = [x for x in arrived if start_ms <= x.eventTime <= each.eventTime]
        window = [x for x in window if after_ms is None or x.eventTime > after_ms]
        if rule["aggregateFieldName"] in ("COUNT_FLINK", "COUNT_WITH_RESET_FLINK"):
            values = [Decimal(1) for _ in window]
        else:
            values = [Decimal(getattr(x, rule["aggregateFieldName"])) for x in window]
        value = {"SUM": sum, "MIN": min, "MAX": max}[rule["aggregatorFunctionType"]](values)
        if not COMPARE[rule["limitOperatorType"]](value, Decimal(rule["limit"])):
            return None
        if rule["aggregateFieldName"] == "COUNT_WITH_RESET_FLINK":
            self.reset_ms[key] = each.eventTime
        return value


def looped(written: list[dict[str, Any]], stream: list[Transaction]) -> list[Alert]:
    """The alerts of rules, by payment and then by rule."""
    loops = [Loop(each) for each in written]
    found = []
    for each in stream:
        for loop in loops:
            value = loop.arrive(each)
            if value is not None:
                found.append(Alert(str(loop.rule["ruleId"]), each.transactionId, value))
    return found


def in_cuts(rules: list[Rule], stream: list[Transaction], ends: list[int], **settings: Any) -> list[Alert]:
    """The alerts of the engine, whose tables of events end at the given positions."""
    engine = buckets.EngineSettings.model_validate(settings)
    evaluator = buckets.Evaluator(rules, SCHEMA, engine)
    found = []
    for begin, end in zip([0, *ends], [*ends, len(stream)], strict=True):
        found += alerts_of(evaluator.evaluate(table_of(stream[begin:end])))
    return found
