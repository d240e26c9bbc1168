"""Groups whose key is another field's value: `beneficiaryId AS payerId` reads the timeline of that payer.

Such a grouping field is kept as that text, so that it identifies groups. The field before AS belongs to the event being
evaluated, the one after it to the events that count.
"""

from collections.abc import Iterable, Mapping
from typing import Final

AS: Final = " AS "
ALERTS: Final = "alerts."
"""Prefix of the field after AS if the counted things are alerts; people write `on: alerts`."""


def asked_field(field: str) -> str:
    """Return the field of the event at which a feature is computed: `beneficiaryId`."""
    return field.partition(AS)[0]


def counted_field(field: str) -> str:
    """Return the field of the events that count: `payerId`."""
    return field.partition(AS)[2].removeprefix(ALERTS) or field


def over_alerts(fields: Iterable[str]) -> tuple[str, ...]:
    """Return grouping fields for an event that reads timelines of alerts."""
    return tuple(f"{asked_field(field)}{AS}{ALERTS}{counted_field(field)}" for field in fields)


def asks_alerts(fields: Iterable[str]) -> bool:
    """Return whether grouping fields are for an event that reads timelines of alerts."""
    return any(f"{AS}{ALERTS}" in field for field in fields)


def has_roles(fields: Iterable[str]) -> bool:
    """Return whether some grouping field differs between the evaluated event and the events that count."""
    return any(map(has_role, fields))


def has_role(field: str) -> bool:
    """Return whether a grouping field differs between the evaluated event and the events that count."""
    return AS in field


def fields_of(fields: Iterable[str]) -> list[str]:
    """Return the event fields that grouping fields name, each once."""
    return list(dict.fromkeys(name for field in fields for name in (counted_field(field), asked_field(field))))


def renamed_field(field: str, names: Mapping[str, str]) -> str:
    """Return a grouping field with its fields renamed."""
    asked, counted = asked_field(field), counted_field(field)
    own = AS + ALERTS if asks_alerts([field]) else AS
    return own.join(names.get(name, name) for name in ((asked, counted) if AS in field else (field,)))


def grouping_fault(fields: tuple[str, ...]) -> str | None:
    """Return a fault of the grouping fields of a feature, if any."""
    for field in fields:
        names = field.split(AS)
        is_text = all(name.strip() == name and name for name in names)
        if len(names) > 2 or not is_text or (names[1:2] and names[1].startswith(ALERTS)):
            return f"{field!r} is no grouping field; write a field, or two as in beneficiaryId AS payerId"
        if len(names) == 2 and names[0] == names[1]:
            return f"{field!r} reads the timeline of the same field; write {names[0]}"
    for pick in (str, counted_field):
        picked = [pick(field) for field in fields]
        if len(set(picked)) != len(picked):
            return f"a field is named twice in {list(fields)}"
    return None
