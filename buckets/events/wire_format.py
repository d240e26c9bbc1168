"""The prefix that values have whose schemas lie in a registry: a byte 0, and the number of the schema in four bytes.

Source: Confluent's wire format,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW
from buckets.events.text_lines import as_text

Int64s = npt.NDArray[np.int64]
PREFIX_BYTES = 5
NO_PREFIX = "does not begin with the prefix of a schema registry, five bytes of which the first is 0"


@dataclass(frozen=True)
class MessageBytes:
    """The bytes of messages.

    Attributes:
        data: uint8, the bytes of all.
        begin: int64 `(rows,)`, where each begins.
        end: int64 `(rows,)`, where each ends.
    """

    data: npt.NDArray[np.uint8]
    begin: Int64s
    end: Int64s

    @classmethod
    def of(cls, raw: pa.Array) -> "MessageBytes":
        """Return the bytes of a column, without a copy of them."""
        wide = raw.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        at = np.zeros(1, np.int64)
        if len(wide):
            at = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
        return cls(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), at[:-1], at[1:])

    def schema_numbers(self) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return the number in the prefix of each message, and which messages have a prefix."""
        is_prefixed = self.end - self.begin >= PREFIX_BYTES
        at = self.begin[is_prefixed]
        number = np.zeros(len(at), np.int64)
        for byte in range(1, PREFIX_BYTES):
            number = number << 8 | self.data[at + byte]
        numbers = np.zeros(len(self.begin), np.int64)
        numbers[is_prefixed] = number
        is_prefixed[is_prefixed] = self.data[at] == 0
        return numbers, is_prefixed


def text_behind_prefix(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Take the prefix off `raw` and make text of it, as `as_text` does; in `broken` also for messages without one."""
    raw = rows.column(RAW)
    _, is_prefixed = MessageBytes.of(raw).schema_numbers()
    has_prefix = pa.array(is_prefixed)
    text = pc.if_else(has_prefix, pc.binary_replace_slice(raw, 0, PREFIX_BYTES, b""), raw)
    rows = as_text(rows.set_column(rows.schema.get_field_index(RAW), RAW, text))
    reasons = pc.if_else(has_prefix, rows.column(BROKEN), NO_PREFIX)
    return rows.set_column(rows.schema.get_field_index(BROKEN), BROKEN, reasons)
