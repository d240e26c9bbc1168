"""A schema and a rule to begin from, where a test needs some and only a part of them matters."""

from typing import Any

from buckets.events.schema import EventSchema
from buckets.rules.completeness import Stretch, Stretches
from buckets.rules.group import Group
from buckets.rules.rule import Rule

SCHEMA = EventSchema.model_validate(
    {
        "name": "payment",
        "event_id": "id",
        "event_time": "at",
        "attributes": {"payer": "string", "kind": "string", "account": "long", "vip": "boolean"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}},
    }
)


def with_new_names(schema: EventSchema, names: dict[str, str]) -> EventSchema:
    """The schema in which fields have other names, and their old ones as aliases."""
    aliases = {
        name: [spelling for spelling in schema.spellings(old) if spelling != name] for old, name in names.items()
    }
    kept = {name: before for name, before in schema.aliases.items() if name not in names}
    return EventSchema.model_validate(schema.renamed(names).model_dump(mode="json") | {"aliases": kept | aliases})


def written_rule(**changes: Any) -> dict[str, Any]:
    """A rule as it stands in a rule file, with some fields changed; None takes a field away."""
    rule = {
        "rule_id": "r",
        "group_by": ["payer"],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "100"},
    }
    return {name: value for name, value in (rule | changes).items() if value is not None}


def rule(rule_id: str = "r", measure: str | None = "amount", length: str = "1h", **changes: Any) -> Rule:
    """A rule over a measure; a count where there is none."""
    aggregate = {"function": "sum", "measure": measure} if measure else {"function": "count"}
    parts = {"rule_id": rule_id, "aggregate": aggregate, "window": {"length": length}}
    return Rule.model_validate(written_rule(**(parts | changes)))


def until(moment_ms: int | None) -> Stretches:
    """What has arrived where all that is known is the greatest event time; None where no event has."""
    return () if moment_ms is None else (Stretch(moment_ms, moment_ms),)


def since(group: Group) -> dict[str, int | None]:
    """By track, since when it is complete, for all events alike."""
    found: dict[str, int | None] = {}
    for track, complete in group.complete.items():
        (step,) = complete or (None,)
        found[track] = step.since_ms if step else None
    return found
