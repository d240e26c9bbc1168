"""The prefix that values have whose schemas lie in a registry: a byte 0, and the number of the schema in four bytes.

Source: Confluent's wire format,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW
from buckets.events.text_lines import as_text

Int64s = npt.NDArray[np.int64]
PREFIX_BYTES = 5
NO_NUMBER = -1
NO_PREFIX = "does not begin with the prefix of a schema registry, five bytes of which the first is 0"


def schema_numbers(raw: pa.Array) -> Int64s:
    """Return the number in the prefix of each message, `NO_NUMBER` of one without a prefix."""
    prefixes = pc.binary_slice(raw, 0, PREFIX_BYTES).to_pylist()
    numbers = (
        int.from_bytes(prefix) if len(prefix) == PREFIX_BYTES and prefix[0] == 0 else NO_NUMBER for prefix in prefixes
    )
    return np.fromiter(numbers, np.int64, len(prefixes))


def text_behind_prefix(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Take the prefix off `raw` and make text of it, as `as_text` does; in `broken` also for messages without one."""
    raw = rows.column(RAW)
    has_prefix = pa.array(schema_numbers(raw) != NO_NUMBER)
    text = pc.if_else(has_prefix, pc.binary_replace_slice(raw, 0, PREFIX_BYTES, b""), raw)
    rows = as_text(rows.set_column(rows.schema.get_field_index(RAW), RAW, text))
    reasons = pc.if_else(has_prefix, rows.column(BROKEN), NO_PREFIX)
    return rows.set_column(rows.schema.get_field_index(BROKEN), BROKEN, reasons)
