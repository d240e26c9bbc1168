"""The latest events of a key in the archive of a job, and what rules made of the last one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from buckets.archive.archive import ARRIVAL, FAULT
from buckets.archive.history import History
from buckets.delta.query import in_ms, is_in, quoted_column
from buckets.errors import BucketsError
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.maker import Explainer
from buckets.rules.rule import Rule


@dataclass(frozen=True)
class KeyTest:
    """A test that an event is of a key.

    Attributes:
        fields: the fields of the key.
        sql: the test.
    """

    fields: frozenset[str]
    sql: str

    @classmethod
    def of(cls, key: Mapping[str, str], kinds: Mapping[str, str]) -> "KeyTest":
        """Return the test of a key, whose values are given as text.

        Args:
            key: its fields.
            kinds: the attributes of events, each with its kind.

        Raises:
            BucketsError: events have no such field, or it has no such values.
        """
        return cls(frozenset(key), " and ".join(_test(field, value, kinds) for field, value in key.items()))


def key_events(history: History, test: KeyTest, most: int) -> list[dict[str, Any]]:
    """Return the latest events of a key, the latest first."""
    schema = history.job.event_schema
    if not history.archive.exists():
        return []
    time = quoted_column(schema.event_time.field)
    where = f"{test.sql} and {quoted_column(FAULT)} is null"
    sql = f"select * from archive where {where} order by {time} desc, {quoted_column(ARRIVAL)} desc limit {most}"
    names = schema.other_fields
    return [
        {
            "event_id": str(row[schema.event_id]),
            "time_ms": row[schema.event_time.field],
            **{name: row.get(name) for name in schema.measures},
            "fields": {name: row[name] for name in names if row.get(name) is not None},
        }
        for row in in_ms(history.archive.query(sql)).to_pylist()
    ]


def rules_of_key(rules: list[Rule], test: KeyTest) -> list[Rule]:
    """Return the rules over events that group by the fields of a key, and maybe by others too."""
    return [rule for rule in rules if rule.on == "events" and test.fields <= set(rule.group_by)]


def nearness(explainer: Explainer, event: Mapping[str, Any], rules: list[Rule]) -> list[dict[str, Any]]:
    """Return what rules made of an event of `key_events`, and how near each was."""
    explained = ((rule, explainer.event(event["event_id"], rule.rule_id, event["time_ms"])) for rule in rules)
    return [{"rule_id": rule.rule_id, **_nearness(explanation)} for rule, explanation in explained]


def _test(field: str, value: str, kinds: Mapping[str, str]) -> str:
    if field not in kinds:
        message = f"field: events have no attribute {field!r}; there are {', '.join(kinds)}"
        raise BucketsError(message)
    if kinds[field] == "long" and not (value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 20):
        message = f"value: {field} is a whole number, and {value!r} is none"
        raise BucketsError(message)
    if kinds[field] == "boolean":
        if value not in ("true", "false"):
            message = f"value: {field} is true or false, not {value!r}"
            raise BucketsError(message)
        return f"{quoted_column(field)} = {value}"
    return is_in(field, [int(value) if kinds[field] == "long" else value])


def _nearness(explanation: Explanation) -> dict[str, Any]:
    feature = next(iter(explanation.features), None)
    tests = () if explanation.condition is None else explanation.condition.tests()
    return {
        "outcome": explanation.outcome,
        "words": "; ".join(test.text for test in tests) or "; ".join(reason.sentence for reason in explanation.reasons),
        "start_ms": None if feature is None else feature.start_ms,
        "end_ms": None if feature is None else feature.end_ms,
    }
