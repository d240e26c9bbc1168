"""An event schema as text, made of the schema of Avro that messages are written with."""

from collections.abc import Iterator
from typing import Any

import yaml

from buckets.errors import BucketsError
from buckets.events.avro.avro_type import AvroType, RecordField
from buckets.events.schema import LARGEST_SCALE
from buckets.validation import did_you_mean

_KINDS = {
    "string": "string",
    "enum": "string",
    "int": "long",
    "long": "long",
    "boolean": "boolean",
}


def event_schema_text(root: AvroType, name: str, event_id: str, event_time: str) -> str:
    """Return an event schema in YAML, with a comment for each field that it cannot have.

    Args:
        root: the schema of a record.
        name: what the kind of event is called.
        event_id: the field that identifies an event.
        event_time: the field that says when it happened.

    Raises:
        BucketsError: it is no record, or has no such fields.
    """
    if root.kind != "record":
        message = f"{name}: the schema is of type {root.kind}; name one of a record"
        raise BucketsError(message)
    fields = {field.name: field for field in root.fields}
    for option, chosen in (("--id", event_id), ("--time", event_time)):
        if chosen not in fields:
            message = (
                f"{option}: {name} has no field {chosen}{did_you_mean(chosen, fields)}; fields: {', '.join(fields)}"
            )
            raise BucketsError(message)
    attributes: dict[str, str] = {}
    measures: dict[str, Any] = {}
    left_out: list[str] = []
    for field in root.fields:
        if field.name not in (event_id, event_time):
            left_out += _declare(field, attributes, measures)
    declared = {
        "name": name,
        "version": 1,
        "event_id": event_id,
        "event_time": {"field": event_time, "unit": _unit(_plain(fields[event_time].kind))},
        "attributes": attributes,
        "measures": measures,
    }
    text = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)
    return text + "".join(f"# {line}\n" for line in left_out)


def _declare(field: RecordField, attributes: dict[str, str], measures: dict[str, Any]) -> Iterator[str]:
    """Declare a field, or yield a line that says why it is not."""
    kind = _plain(field.kind)
    if kind.logical == "decimal" and kind.scale <= LARGEST_SCALE:
        measures[field.name] = {"scale": kind.scale}
    elif kind.logical == "decimal":
        yield f"{field.name}: has {kind.scale} digits after the point, and a measure has at most {LARGEST_SCALE}"
    elif kind.logical:
        attributes[field.name] = "string"
    elif kind.kind in _KINDS:
        attributes[field.name] = _KINDS[kind.kind]
    elif kind.kind in ("float", "double"):
        yield f"{field.name}: is a {kind.kind}; as a measure it needs a scale, as in {{scale: 2}}"
    else:
        yield f"{field.name}: is of type {kind.kind}"


def _plain(kind: AvroType) -> AvroType:
    """Return what a union with null is beside null; anything else as it is."""
    others = [branch for branch in kind.branches if branch.kind != "null"] if kind.kind == "union" else []
    return others[0] if len(others) == 1 else kind


def _unit(kind: AvroType) -> str:
    return "iso8601" if kind.kind == "string" else "ms"
