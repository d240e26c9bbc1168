"""Streams of events for laws about features, and rows of them as tables."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import buckets

Row = dict[str, Any]
START_MS = 1_700_000_000_000
_KINDS = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}


def schema_of(**attributes: str) -> buckets.EventSchema:
    """A schema of events that have an id, a time, an amount of two digits after the point, and some attributes."""
    measures = {"amount": {"scale": 2}}
    return buckets.EventSchema.model_validate(
        {"event_id": "id", "event_time": "time", "attributes": attributes, "measures": measures}
    )


CARDS = schema_of(card="string", text="string", flag="boolean")
"""The schema of `card_stream`."""


def table_of(rows: Sequence[Row], schema: buckets.EventSchema, at: int = 0) -> pa.Table:
    """Rows as a table, in two pieces where the first of them has some."""
    if 0 < at < len(rows):
        return pa.concat_tables([table_of(rows[:at], schema), table_of(rows[at:], schema)])
    kinds = {"id": pa.string(), "time": pa.int64()}
    kinds |= {name: _KINDS[kind] for name, kind in schema.attributes.items()}
    kinds |= {name: pa.decimal128(10, measure.scale) for name, measure in schema.measures.items()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds[name]) for name in rows[0]})


@st.composite
def streams(
    draw: st.DrawFn,
    steps_ms: Sequence[int],
    fields: Mapping[str, st.SearchStrategy[Any]],
    most: int = 40,
    may_repeat: bool = False,
) -> list[Row]:
    """Events of which each is so long after the latest before it, or before that one; some may arrive again."""
    rows: list[Row] = []
    clock_ms = START_MS
    for number in range(draw(st.integers(6, most))):
        if may_repeat and rows and draw(st.integers(0, 11)) == 0:
            rows.append(dict(draw(st.sampled_from(rows))))
            continue
        time_ms = clock_ms + draw(st.sampled_from(steps_ms))
        clock_ms = max(clock_ms, time_ms)
        rows.append({"id": f"e{number}", "time": time_ms} | {name: draw(each) for name, each in fields.items()})
    return rows


def card_stream(
    random: np.random.Generator, size: int, texts: Sequence[str | None], lateness_ms: int = 1, flagged: float = 0.5
) -> list[Row]:
    """Events of two cards, a tenth of them up to so late."""
    rows, clock_ms = [], 1_000_000
    for number in range(size):
        clock_ms += int(random.integers(0, 300))
        rows.append(
            {
                "id": f"e{number}",
                "time": clock_ms - int(random.integers(0, lateness_ms) if random.random() < 0.1 else 0),
                "card": "a" if random.random() < 0.9 else "b",
                "text": texts[int(random.integers(0, len(texts)))],
                "flag": bool(random.random() < flagged),
                "amount": Decimal(int(random.integers(-300, 300))).scaleb(-2) if random.random() < 0.9 else None,
            }
        )
    return rows
