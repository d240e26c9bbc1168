"""Members of a JSON object as they are written, so that what lies in them can be read by itself."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from buckets.events.json_events import has_plain_names
from buckets.events.json_object import DEEPEST, Fields, read_object

_NOTHING = (b"", b"null")


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    columns = [f"member_{index}" for index in range(len(names))]
    fields = [(column, msgspec.Raw, msgspec.Raw()) for column in columns]
    return msgspec.json.Decoder(msgspec.defstruct("Members", fields, rename=dict(zip(columns, names, strict=True))))


def members(text: bytes, names: tuple[str, ...], once: tuple[str, ...] | None = None) -> list[bytes | None]:
    """Return the JSON of members of an object; None for those that are missing or null.

    Args:
        text: the object.
        names: of the members.
        once: those that may be there only once; None for all. Of another one the last may be returned.

    Raises:
        ValueError: it is no object, or one of them is given twice; says why.
    """
    if _is_simple(text, names if once is None else once):
        try:
            found = msgspec.structs.astuple(_decoder(names).decode(text))
        except (ValueError, RecursionError):
            pass
        else:
            return [None if member in _NOTHING else member for member in map(bytes, found)]
    event = read_object(text.decode())
    return [_member(event, name, once is None or name in once) for name in names]


def _is_simple(text: bytes, names: Sequence[str]) -> bool:
    """Return whether no member can be given twice, nor the nesting be too deep."""
    if any(text.count(f'"{name}"'.encode()) > 1 for name in names) or text.count(b"[") + text.count(b"{") > DEEPEST:
        return False
    return b"\\" not in text or has_plain_names(text)


def _member(event: Fields, name: str, is_once: bool) -> bytes | None:
    found = [value for own, value in event if own == name]
    if len(found) > 1 and is_once:
        message = f"{name}: is given twice"
        raise ValueError(message)
    return None if not found or found[-1] is None else json_text(found[-1]).encode()


def json_text(value: Any) -> str:
    """Write a value that `read_object` has read; its numbers are text, and stay so."""
    if isinstance(value, Fields):
        return "{" + ",".join(f"{json.dumps(name)}:{json_text(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value)


def kind_of(member: bytes) -> str:
    """Return what a member is: an object, a list, or one value."""
    return {b"{": "an object", b"[": "a list"}.get(member[:1], "one value")
