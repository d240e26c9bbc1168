"""An event schema as text, made of the schema that messages are written with."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from buckets.errors import BucketsError
from buckets.events.schema import AttributeType
from buckets.expressions.expression import ELEMENTS, is_array
from buckets.validation import did_you_mean


@dataclass(frozen=True)
class ImportedField:
    """A field of messages, and what it can be in an event schema: an attribute, a measure, or neither.

    Attributes:
        name: of the field; an array is called so that its name leads into the list.
        attribute: its type as an attribute, or that of an array's elements; None for none.
        scale: the digits of a measure; None for none.
        reason: why it is neither, as text.
        unit: what it is in as the time of an event.
        is_single: whether it is one value, as the id and the time of an event must be.
    """

    name: str
    attribute: AttributeType | None = None
    scale: int | None = None
    reason: str = ""
    unit: Literal["ms", "iso8601"] = "ms"
    is_single: bool = True


def in_list(name: str, fields: Iterable[ImportedField]) -> Iterator[ImportedField]:
    """Yield what the elements of a list can be in arrays.

    Args:
        name: of the list.
        fields: what an element is, with an empty name, or those of an element that is an object.
    """
    for field in fields:
        called = f"{name}{ELEMENTS}" + (f".{field.name}" if field.name else "")
        if is_array(field.name) or field.attribute is None:
            reason = "is a list in a list" if is_array(field.name) else field.reason or "is an amount"
            # What a measure would need does not help here.
            reason = reason.partition(";")[0]
            yield ImportedField(called, reason=reason, is_single=False)
        else:
            yield ImportedField(called, field.attribute, is_single=False)


def event_schema_text(fields: Sequence[ImportedField], name: str, event_id: str, event_time: str) -> str:
    """Return an event schema in YAML, with a comment for each field that it cannot have.

    Args:
        fields: those of the messages.
        name: what the kind of event is called.
        event_id: the field that identifies an event.
        event_time: the field that says when it happened.

    Raises:
        BucketsError: there are no such fields, one is both, or none that is one value.
    """
    known = {field.name: field for field in fields}
    for option, chosen in (("--id", event_id), ("--time", event_time)):
        if chosen not in known:
            hint = "; for changes as Debezium writes them say --envelope debezium" if f"after.{chosen}" in known else ""
            near = hint or did_you_mean(chosen, known)
            message = f"{option}: {name} has no field {chosen}{near}; fields: {', '.join(known)}"
            raise BucketsError(message)
        if not known[chosen].is_single:
            what = "lies in a list" if is_array(chosen) else known[chosen].reason
            message = f"{option}: {chosen} {what}, and must be one value"
            raise BucketsError(message)
    if event_id == event_time:
        message = f"--id and --time are both {event_id}; name two fields"
        raise BucketsError(message)
    others = [field for field in fields if field.name not in (event_id, event_time)]
    typed = {field.name: field.attribute for field in others if field.attribute is not None}
    declared: dict[str, Any] = {
        "name": name,
        "version": 1,
        "event_id": event_id,
        "event_time": {"field": event_time, "unit": known[event_time].unit},
        "attributes": {name: kind for name, kind in typed.items() if not is_array(name)},
        "measures": {field.name: {"scale": field.scale} for field in others if field.scale is not None},
        "arrays": {name: kind for name, kind in typed.items() if is_array(name)},
    }
    if not declared["arrays"]:
        del declared["arrays"]
    text = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)
    return text + "".join(f"# {field.name}: {field.reason}\n" for field in others if field.reason)
