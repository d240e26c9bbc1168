"""Ids of events whose data have none, made where events are read; from there on they are ids like any others.

An id of the kind `hash` is BLAKE2b of 16 bytes, in hexadecimal, over the values of its fields one after the other, in
the order of the declaration and without their names: `-` for a value that is missing, else the length of its text in
UTF-8, a colon, and the text. A time is in ms since 1970, a `long` in digits, a measure without zeros that say nothing
(12.50 is `12.5`), a boolean `true` or `false`, an array its elements in the same form. So one row has one id in JSON,
CSV, Parquet, Avro and Protobuf, and under new names of fields.

An id of the kind `row` is the path of the file below the folder of the source, a colon, and the number of the row.
"""

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events import conversion
from buckets.events.arrivals import POSITION, SOURCE, field_column
from buckets.events.message_fields import without_made_id
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import format_scaled
from buckets.stores.store_path import StorePath

_ID_BYTES = 16


def with_made_ids(
    batches: Iterable[pa.RecordBatch], schema: EventSchema, folder: Path | None = None
) -> Iterator[pa.RecordBatch]:
    """Give events an id as the first of their fields, if their schema says that it is made.

    Args:
        batches: events, read by `without_made_id` of the schema.
        schema: the event schema.
        folder: that of the source, or its one file; None where `source` names rows as it stands.
    """
    return (_with_ids(rows, schema, folder) for rows in batches) if schema.identity.is_made else iter(batches)


def _with_ids(rows: pa.RecordBatch, schema: EventSchema, folder: Path | None) -> pa.RecordBatch:
    read = without_made_id(schema).field_names
    fields = {name: rows.column(field_column(index)) for index, name in enumerate(read)}
    ids = _row_ids(rows, folder) if schema.identity.row else _hashed(fields, schema)
    of_fields = set(map(field_column, range(len(read))))
    others = {name: rows.column(name) for name in rows.schema.names if name not in of_fields}
    fields[schema.event_id] = ids
    return pa.record_batch(
        others | {field_column(index): fields[name] for index, name in enumerate(schema.field_names)}
    )


def _row_ids(rows: pa.RecordBatch, folder: Path | None) -> pa.StringArray:
    source = rows.column(SOURCE).dictionary_encode()
    begin = os.path.normpath(folder) if folder and not isinstance(folder, StorePath) else str(folder or "")
    names = pa.array([_below(path, begin) for path in source.dictionary.to_pylist()], pa.string())
    return pc.binary_join_element_wise(names.take(source.indices), rows.column(POSITION).cast(pa.string()), ":")


def _below(path: str, folder: str) -> str:
    """Return the path of a file below a folder; of one that is the whole source its name."""
    return path.rpartition("/")[2] if path == folder else path.removeprefix(f"{folder}/")


def _hashed(fields: dict[str, pa.Array], schema: EventSchema) -> pa.StringArray:
    """Return the hash of some fields of each event; of one whose fields do not parse it means nothing."""
    parts = [_with_lengths(_text(fields[name], name, schema)) for name in schema.identity.hash]
    texts = pc.binary_join_element_wise(*parts, "")
    return pa.array([blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest() for text in texts.to_pylist()])


def _with_lengths(texts: pa.Array) -> pa.Array:
    """Return texts in a form in which no two sequences of them look alike."""
    lengths = pc.binary_length(texts).cast(pa.string())
    return pc.binary_join_element_wise(lengths, texts, ":").fill_null("-")


def _text(column: pa.Array, name: str, schema: EventSchema) -> pa.Array:
    """Return the values of a field as the one text that each has in every format."""
    if name == schema.event_time.field:
        times_ms, _ = conversion.times_ms(column, schema.event_time)
        return pa.array(times_ms, mask=column.is_null().to_numpy(zero_copy_only=False)).cast(pa.string())
    if name in schema.measures:
        scale = schema.measures[name].scale
        scaled, _ = conversion.measures(column, scale)
        shortest = (_shortest(value, scale) for value in scaled.tolist())
        valid = column.is_valid().to_pylist()
        return pa.array(
            [text if is_valid else None for text, is_valid in zip(shortest, valid, strict=True)], pa.string()
        )
    if name in schema.arrays:
        lists, _ = conversion.arrays(column, schema.arrays[name])
        elements = _with_lengths(lists.flatten().cast(pa.string()))
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        ends = np.cumsum(lengths)
        written = elements.to_pylist()
        joined = [
            "".join(written[end - length : end]) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
        ]
        return pc.if_else(lists.is_valid(), pa.array(joined, pa.string()), None)
    values, _ = conversion.attributes(column, schema.attributes[name])
    return values.cast(pa.string())


def _shortest(scaled: int, scale: int) -> str:
    text = format_scaled(scaled, scale)
    return text.rstrip("0").rstrip(".") if scale else text
