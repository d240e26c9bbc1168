"""What the fields of a schema of Avro can be in an event schema; those of records inside are named by paths."""

from collections.abc import Iterator

from buckets.errors import BucketsError
from buckets.events.avro.avro_type import AvroType, RecordField
from buckets.events.avro.columns import NO_VALUES
from buckets.events.imported_schema import ImportedField, in_list
from buckets.events.schema import LARGEST_SCALE, AttributeType

_KINDS: dict[str, AttributeType] = {
    "string": "string",
    "enum": "string",
    "int": "long",
    "long": "long",
    "boolean": "boolean",
}


def imported_fields(root: AvroType, name: str) -> list[ImportedField]:
    """Return the fields of a record.

    Args:
        root: the schema.
        name: what the kind of event is called.

    Raises:
        BucketsError: it is no record.
    """
    if root.kind != "record":
        message = f"{name}: the schema is of type {root.kind}; name one of a record"
        raise BucketsError(message)
    return list(_fields(root, "", ()))


def _fields(record: AvroType, before: str, outer: tuple[AvroType, ...]) -> Iterator[ImportedField]:
    """Yield the fields of a record, the arrays that lists can be, and the fields of records in it.

    Records that contain themselves are passed over.
    """
    for field in record.fields:
        kind, name = _plain(field.kind), f"{before}{field.name}"
        if kind.kind == "record" and kind.fields and kind not in (*outer, record):
            yield from _fields(kind, f"{name}.", (*outer, record))
        elif kind.kind == "array":
            item = _plain(kind.branches[0])
            parts = item.fields if item.kind == "record" else (RecordField("", item),)
            yield from in_list(name, (_imported(part.name, _plain(part.kind)) for part in parts))
        else:
            yield _imported(name, kind)


def _imported(name: str, kind: AvroType) -> ImportedField:
    if kind.logical == "decimal" and kind.scale <= LARGEST_SCALE:
        return ImportedField(name, scale=kind.scale)
    if kind.logical == "decimal":
        reason = f"has {kind.scale} digits after the point, and a measure has at most {LARGEST_SCALE}"
        return ImportedField(name, reason=reason)
    if kind.logical:
        return ImportedField(name, "string", unit="iso8601" if kind.kind == "string" else "ms")
    if kind.kind in _KINDS:
        return ImportedField(name, _KINDS[kind.kind], unit="iso8601" if kind.kind == "string" else "ms")
    if kind.kind in ("float", "double"):
        return ImportedField(name, reason=f"is a {kind.kind}; as a measure it needs a scale, as in {{scale: 2}}")
    return ImportedField(name, reason=f"is of type {kind.kind}", is_single=kind.kind not in NO_VALUES)


def _plain(kind: AvroType) -> AvroType:
    """Return what a union with null is beside null; anything else as it is."""
    others = [branch for branch in kind.branches if branch.kind != "null"] if kind.kind == "union" else []
    return others[0] if len(others) == 1 else kind
