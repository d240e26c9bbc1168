"""Keys as bytes: the values of the grouping fields, joined so that different values never give the same bytes.

Values are text, separated by NUL. A NUL or SOH inside a value is escaped (`01 01`, `01 02`), which keeps the joined
form unambiguous. Longs and scaled measures are written in decimal, booleans as `true` and `false`.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.aggregate import FieldKind
from buckets.arrays import Int64s
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import format_scaled, to_scaled
from buckets.rules.feature import field_kind
from buckets.rules.group import Group

_SEPARATOR, _ESCAPE = "\x00", "\x01"


def encode_key(values: Iterable[str]) -> str:
    """Encode a key from the values of `Group.key_fields` as text."""
    return _SEPARATOR.join(value.replace(_ESCAPE, "\x01\x02").replace(_SEPARATOR, "\x01\x01") for value in values)


def decode_key(group: Group, key: str, schema: EventSchema) -> dict[str, Any]:
    """Decode a key into its fields and values, in the order of rules; measures are scaled integers."""
    if not group.fields:
        return {}
    texts = key.split(_SEPARATOR) if len(group.fields) > 1 else [key]
    values = dict(zip(group.key_fields, texts, strict=True))
    named = zip(group.fields, group.counted_fields, strict=True)
    return {counted: _typed(values[field], field_kind(counted, schema)) for field, counted in named}


def key_of_values(group: Group, values: Sequence[str], schema: EventSchema) -> str:
    """Encode a key from the values of its fields as text, in the order in which rules name them.

    Raises:
        ValueError: the numbers of values and fields differ, or a measure is not a decimal of its scale.
    """
    if len(values) != len(group.fields):
        message = f"{len(values)} values for {len(group.fields)} fields"
        raise ValueError(message)
    texts = dict(zip(group.fields, values, strict=True))
    texts |= {
        name: str(to_scaled(texts[name], schema.measures[name].scale)) for name in texts if name in schema.measures
    }
    return encode_key(texts[field] for field in group.key_fields)


def _typed(text: str, kind: FieldKind) -> Any:
    if kind in ("long", "measure"):
        return int(text)
    return text == "true" if kind == "boolean" else _unescaped(text)


def _unescaped(text: str) -> str:
    return text.replace("\x01\x01", _SEPARATOR).replace("\x01\x02", _ESCAPE) if _ESCAPE in text else text


def key_writer(group: Group, schema: EventSchema, order: Sequence[str] = ()) -> Callable[[str], str]:
    """Return a function that writes a key as users read it: `{"payerId": "p1", "beneficiaryId": "b9"}`.

    `order` overrides the group's order of fields.
    """
    field_of = dict(zip(group.counted_fields, group.fields, strict=True))
    shown = [
        (f"{encode_basestring(name)}: ", group.key_fields.index(field_of[name]), _json_writer(name, schema))
        for name in order or field_of
    ]
    is_one = len(group.fields) == 1

    def write(key: str) -> str:
        texts = [key] if is_one else key.split(_SEPARATOR)
        return f"{{{', '.join([start + write_value(texts[place]) for start, place, write_value in shown])}}}"

    return write


def _json_writer(name: str, schema: EventSchema) -> Callable[[str], str]:
    kind = field_kind(name, schema)
    if kind == "measure":
        scale = schema.measures[name].scale
        return lambda text: encode_basestring(format_scaled(int(text), scale))
    return str if kind in ("long", "boolean") else lambda text: encode_basestring(_unescaped(text))


def shards_of(group: Group, keys: pa.Array, shards: int) -> Int64s:
    """Return the shard that holds each key, int64 `(keys,)`: the same in every run and on every machine."""
    of_group = zlib.crc32(group.group_id.encode())
    hashes = [zlib.crc32(key, of_group) for key in keys.cast(pa.binary()).to_pylist()]
    return np.array(hashes, np.int64) % shards


Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MemoryPart:
    """The description of a growing array."""

    name: str  # the name of the array
    dtype: type[np.generic]  # of its numbers
    columns: int = 1  # how many numbers a row has; 1 for an array of one dimension

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self.columns * np.dtype(self.dtype).itemsize

    def shaped(self, numbers: Array) -> Array:
        """Reshape numbers into rows."""
        return numbers if self.columns == 1 else numbers.reshape(-1, self.columns)

    def empty(self, rows: int) -> Array:
        """Return this many uninitialised rows."""
        return self.shaped(np.empty(rows * self.columns, self.dtype))


class ArenaMemory(Protocol):
    """Growing arrays. Each call replaces the array that was returned for the part before."""

    def grow(self, part: MemoryPart, kept: int, rows: int) -> Array:
        """Return an array with at least `rows` rows, the first `kept` of them preserved."""

    def fit(self, part: MemoryPart, kept: int) -> Array:
        """Return an array with its first `kept` rows preserved, and most of the memory behind them released."""


class PrivateMemory:
    """Growing arrays in ordinary memory of this process."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def grow(self, part: MemoryPart, kept: int, rows: int) -> Array:
        """Return an array with at least `rows` rows; unused pages of it take no memory."""
        array = self._arrays.get(part.name)
        if array is None:
            return self._of_rows(part, rows)
        return array if rows <= len(array) else self._of_rows(part, max(rows, len(array) * 3 // 2), array[:kept])

    def fit(self, part: MemoryPart, kept: int) -> Array:
        """Return an array of which the first `kept` rows are at least half."""
        array = self._arrays[part.name]
        return array if len(array) <= 2 * kept else self._of_rows(part, kept, array[:kept])

    def _of_rows(self, part: MemoryPart, rows: int, kept: Array | None = None) -> Array:
        array = self._arrays[part.name] = part.empty(rows)
        if kept is not None:
            array[: len(kept)] = kept
        return array
