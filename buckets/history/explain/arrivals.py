"""What has arrived of one key, as columns: events from the archive, or alerts for rules over alerts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive import archive
from buckets.delta.whole_table import moments_ms
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import format_scaled

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Arrivals:
    """Arrivals in the order in which they came: columns of one length."""

    schema: EventSchema  # what they are
    numbers: Int64s  # int64, ascending: what says which came first
    batches: Int64s  # int64, the batch that each came in
    times_ms: Int64s  # int64, when each happened
    ids: pa.Array  # the id of each
    origins: Sequence[tuple[str, int, int]]  # source, source order and position of each
    ingested_ms: pa.Array  # when the source took each in; None where it does not say
    fields: Mapping[str, pa.Array]  # by name, attributes and arrays in their type and measures as scaled int64
    # the numbers of those at which no rule is evaluated; there may be numbers of others among them
    unjudged: frozenset[int] = frozenset()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.numbers)

    def take(self, rows: Int64s) -> "Arrivals":
        """Return some of them, ascending."""
        index = pa.array(rows)
        return replace(
            self,
            numbers=self.numbers[rows],
            batches=self.batches[rows],
            times_ms=self.times_ms[rows],
            ids=self.ids.take(index),
            origins=[self.origins[row] for row in rows.tolist()],
            ingested_ms=self.ingested_ms.take(index),
            fields={name: column.take(index) for name, column in self.fields.items()},
        )

    def row_of(self, source: str, position: int) -> int:
        """Return which of them came from a place; the first if none did."""
        came_from = ((row_source, row_position) for row_source, _, row_position in self.origins)
        return next((row for row, origin in enumerate(came_from) if origin == (source, position)), 0)

    def columns(self) -> dict[str, pa.Array]:
        """Return their fields as filters take them."""
        named = {self.schema.event_id: self.ids, self.schema.event_time.field: pa.array(self.times_ms)}
        return {**named, **self.fields}

    def event(self, row: int) -> dict[str, Any]:
        """Return one of them as JSON shows it: measures as decimal text, the time in ms."""
        shown: dict[str, Any] = {self.schema.event_id: self.ids[row].as_py()}
        shown[self.schema.event_time.field] = int(self.times_ms[row])
        return shown | {name: self.shown(name, row) for name in self.fields}

    def shown(self, name: str, row: int) -> Any:
        """Return a field of one of them, a measure as decimal text."""
        value = self.fields[name][row].as_py()
        measure = self.schema.measures.get(name)
        return value if measure is None or value is None else format_scaled(value, measure.scale)


def archived_arrivals(rows: pa.Table, schema: EventSchema) -> Arrivals:
    """Read rows of the archive that are events.

    Args:
        rows: with the archive's own columns, and some of the declared fields, among them id and time; in any order.
        schema: the event schema.
    """
    rows = rows.filter(pc.is_null(rows[archive.FAULT])).sort_by(archive.ARRIVAL).combine_chunks()
    fields = {name: _array(rows[name]) for name in schema.other_fields if name in rows.column_names}
    fields |= {name: _scaled(fields[name]) for name in schema.measures if name in fields}
    of_origin = [rows[name].to_pylist() for name in (archive.SOURCE, archive.SOURCE_ORDER, archive.POSITION)]
    return Arrivals(
        schema=schema,
        numbers=rows[archive.ARRIVAL].to_numpy(),
        batches=rows[archive.BATCH].to_numpy(),
        times_ms=moments_ms(rows[schema.event_time.field]).to_numpy(),
        ids=_array(rows[schema.event_id]),
        origins=list(zip(*of_origin, strict=True)),
        ingested_ms=_array(rows[archive.INGESTED]),
        fields=fields,
        unjudged=_unjudged(rows),
    )


def _unjudged(rows: pa.Table) -> frozenset[int]:
    """Return the numbers of rows of the archive at which no rule is evaluated."""
    if archive.JUDGED not in rows.column_names:
        return frozenset()
    return frozenset(rows.filter(pc.equal(rows[archive.JUDGED], pa.scalar(False)))[archive.ARRIVAL].to_pylist())


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _scaled(decimals: pa.Array) -> pa.Array:
    """Return decimals that fit 64 bits as integers: the low word of each."""
    words = np.frombuffer(decimals.buffers()[1] or b"", np.int64)[::2]
    scaled = words[decimals.offset : decimals.offset + len(decimals)]
    return pa.array(scaled, mask=decimals.is_null().to_numpy(zero_copy_only=False))
