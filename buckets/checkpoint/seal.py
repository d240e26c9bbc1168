"""Records with a checksum of what they hold, so that damage is noticed by whoever reads them.

JSON stays JSON: the checksum is the first field of the object, and is of all bytes that follow it. Where a record has a
place of its own, that is part of the checksum: a copy of it in another place is damage too.

    {"checksum": "9b1f6d52c0a7e384", "batch_id": 41, "before": 1700, "greatest": 1810}

What is no JSON begins with `_MAGIC` and a checksum of the rest. Records of earlier releases have none, and are taken as
they are.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_FIELD = "checksum"
_BEFORE, _AFTER = b'{"checksum": "', b'"'
_DIGITS = 16
_HEAD = len(_BEFORE) + _DIGITS + len(_AFTER)
_SURE = len(_BEFORE) - 3
"""Where so many bytes of `_BEFORE` are, it was written, and damaged since; no record of earlier releases begins so."""
_MAGIC = b"BUCKETS1"
OTHER_CHECKSUM = "its checksum is another one"


def seal_json(record: Mapping[str, Any], indent: int | None = None, place: str = "") -> bytes:
    """Return an object as JSON with a checksum; `place` is where alone it may lie, empty for anywhere."""
    rest = json.dumps(record, indent=indent).encode()[1:]
    comma = b"" if not record else b", " if indent is None else b","
    return _head(comma + rest, place) + comma + rest


def unseal_json(data: bytes, place: str = "") -> Any:
    """Return the object that `seal_json` was given for this place, or whatever JSON an earlier release wrote.

    Raises:
        ValueError: these are other bytes than were written, or no JSON.
    """
    alike = sum(one == other for one, other in zip(data, _BEFORE, strict=False))
    if alike >= _SURE and data[:_HEAD] != _head(data[_HEAD:], place):
        raise ValueError(OTHER_CHECKSUM)
    record = json.loads(data)
    if alike == len(_BEFORE):
        del record[_FIELD]
    return record


def seal_bytes(body: bytes, place: str = "") -> bytes:
    """Return bytes with a checksum before them, which may lie in a place alone."""
    return _MAGIC + _digest(body, place).encode() + body


def unseal_bytes(data: bytes | memoryview, plain: bytes = b"", place: str = "") -> memoryview:
    """Return the bytes that `seal_bytes` was given for this place, without a copy.

    All that an earlier release wrote begins with `plain`, and is returned as it is; there is none where that is empty.

    Raises:
        ValueError: these are other bytes.
    """
    view = memoryview(data).cast("B")
    if plain and bytes(view[: len(plain)]) == plain:
        return view
    start = len(_MAGIC) + _DIGITS
    if bytes(view[:start]) != _MAGIC + _digest(view[start:], place).encode():
        raise ValueError(OTHER_CHECKSUM)
    return view[start:]


def _head(body: bytes, place: str) -> bytes:
    return _BEFORE + _digest(body, place).encode() + _AFTER


def _digest(body: bytes | memoryview, place: str) -> str:
    digest = hashlib.blake2b(place.encode(), digest_size=_DIGITS // 2)
    digest.update(body)
    return digest.hexdigest()
