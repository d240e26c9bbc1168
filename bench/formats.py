"""What does it cost to read a message in JSON, Avro, Protobuf and Parquet? CPU from the bytes to columns to be scored.

Messages have 10 or 60 fields, of which 6 are declared: id, time, two texts, a boolean and an amount, as a decimal in
Avro and Parquet and as text in JSON and Protobuf. Nested, payer and country lie in an object `customer`, and half of
the other fields in an object `more`. Behind each format there is what a job does: decode, convert, find what is no
event. The last two sides have the vendors' decoders, fastavro and protobuf, make an object of each message, and nothing
more.

    python bench/formats.py [--repeats N] [--quick]
"""

import gc
import io
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import message_factory
from matplotlib.axes import Axes
from report import Goal, Report

from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER, parse
from buckets.events.avro import avro_events
from buckets.events.csv_events import as_text
from buckets.events.decoded import PREFIX_BYTES, WriterSchema
from buckets.events.json_events import read_events
from buckets.events.parquet_rows import read_arrivals
from buckets.events.protobuf import protobuf_events
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.events.schema import EventSchema

FIELDS = (10, 60)
MESSAGES = 100_000
PIECE = 10_000
"""Rows that Spark hands over at once."""
JSON, AVRO, PROTOBUF, PARQUET = "JSON", "Avro", "Protobuf", "Parquet"
FASTAVRO, VENDOR = "fastavro alone", "protobuf alone"
USED = {"id": "text", "at": "long", "payer": "text", "country": "optional", "vip": "boolean", "amount": "decimal"}
IN_CUSTOMER = ("payer", "country")
OTHERS = ("text", "long", "optional", "double", "boolean")
"""Types of the fields that nobody uses, in turn."""
AVRO_TYPES: Mapping[str, Any] = {
    "text": "string",
    "long": "long",
    "optional": ["null", "string"],
    "double": "double",
    "boolean": "boolean",
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2},
}
PROTO_TYPES = {"text": "string", "long": "int64", "optional": "optional string", "double": "double", "boolean": "bool",
               "decimal": "string"}  # fmt: skip
Shape = dict[str, Any]
"""By name the type of a field, or the fields of an object."""
Side = tuple[Callable[[Any], None], list[Any]]
"""What reads a piece, and the pieces."""


def event_schema(nested: bool) -> EventSchema:
    """The event schema: the fields that are used."""
    name = {field: f"customer.{field}" if nested and field in IN_CUSTOMER else field for field in USED}
    kinds = {name["payer"]: "string", name["country"]: "string", "vip": "boolean"}
    return EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "attributes": kinds, "measures": {"amount": {"scale": 2}}}
    )


def shape_of(fields: int, nested: bool) -> Shape:
    """The fields of a message; those that are used lie among the others."""
    others = [(f"other_{at}", OTHERS[at % len(OTHERS)]) for at in range(fields - len(USED))]
    every = max(1, len(others) // len(USED))
    named = [*others]
    for at, field in enumerate(USED.items()):
        named.insert(at * (every + 1), field)
    if not nested:
        return dict(named)
    inner = dict(others[: len(others) // 2])
    shape: Shape = {}
    for name, kind in named:
        if name in IN_CUSTOMER:
            shape.setdefault("customer", {})[name] = kind
        elif name in inner:
            shape.setdefault("more", {})[name] = kind
        else:
            shape[name] = kind
    return shape


def payment(rng: random.Random, shape: Shape) -> dict[str, Any]:
    """A payment; amounts in cents."""
    return {name: value_of(rng, name, kind) for name, kind in shape.items()}


def value_of(rng: random.Random, name: str, kind: Any) -> Any:
    """A value of a field."""
    if isinstance(kind, dict):
        return payment(rng, kind)
    match name:
        case "id":
            return f"tx-{rng.randrange(10**12):012}"
        case "at":
            return 1_700_000_000_000 + rng.randrange(10**9)
        case "payer":
            return f"payer-{rng.randrange(10**6)}"
        case "country":
            return rng.choice(["DE", "FR", None])
    match kind:
        case "text":
            return f"text {rng.randrange(10**9)}"
        case "long":
            return rng.randrange(10**6)
        case "optional":
            return rng.choice([None, "some text"])
        case "double":
            return round(rng.random() * 1000, 3)
        case "boolean":
            return rng.random() < 0.5
    return rng.randrange(1, 10**7)


def with_amount(record: Mapping[str, Any], write: Callable[[int], Any]) -> dict[str, Any]:
    """A payment with its amount in another form."""
    return {**record, "amount": write(record["amount"])}


def decimal_text(cents: int) -> str:
    """An amount as text."""
    return f"{cents // 100}.{cents % 100:02}"


def avro_schema(name: str, shape: Shape) -> dict[str, Any]:
    """The schema of Avro."""
    fields = [
        {"name": field, "type": avro_schema(field, kind) if isinstance(kind, dict) else AVRO_TYPES[kind]}
        for field, kind in shape.items()
    ]
    return {"type": "record", "name": name, "fields": fields}


def proto(name: str, shape: Shape) -> str:
    """The message of Protobuf."""
    inner = "".join(proto(f"T{field}", kind) for field, kind in shape.items() if isinstance(kind, dict))
    fields = "".join(
        f"{f'T{field}' if isinstance(kind, dict) else PROTO_TYPES[kind]} {field} = {number};"
        for number, (field, kind) in enumerate(shape.items(), 1)
    )
    return f"message {name} {{ {inner} {fields} }}"


def filled(message: Any, record: Mapping[str, Any]) -> Any:
    """A message of Protobuf with the values of a record."""
    for name, value in record.items():
        if isinstance(value, dict):
            filled(getattr(message, name), value)
        elif value is not None:
            setattr(message, name, value)
    return message


def as_avro(record: Mapping[str, Any], parsed: Any) -> bytes:
    """A payment as Avro behind the prefix of a registry."""
    out = io.BytesIO(b"\0\0\0\0\1")
    out.seek(PREFIX_BYTES)
    fastavro.schemaless_writer(out, parsed, with_amount(record, lambda cents: cents.to_bytes(8, signed=True)))
    return out.getvalue()


def sides(fields: int, nested: bool, count: int, folder: Path) -> dict[str, Side]:
    """What reads messages of so many fields, and the messages, by side."""
    rng, shape, schema = random.Random(fields), shape_of(fields, nested), event_schema(nested)
    needed = frozenset({"customer.payer" if nested else "payer", "amount"})
    records = [payment(rng, shape) for _ in range(count)]
    parsed = fastavro.parse_schema(avro_schema("payment", shape))
    avro_text, proto_text = (
        WriterSchema("AVRO", json.dumps(avro_schema("payment", shape))),
        f'syntax = "proto3"; {proto("P", shape)}',
    )
    kind = message_factory.GetMessageClass(message_named(read_schema(WriterSchema("PROTOBUF", proto_text)), None))

    def read_json(rows: pa.RecordBatch) -> None:
        parse(read_events(as_text(rows), schema), schema, needed)

    def read_avro(rows: pa.RecordBatch) -> None:
        parse(avro_events.read_registered(rows, schema, lambda number: avro_text), schema, needed)

    def read_protobuf(rows: pa.RecordBatch) -> None:
        written = WriterSchema("PROTOBUF", proto_text)
        parse(protobuf_events.read_registered(rows, schema, lambda number: written), schema, needed)

    def read_parquet(path: Path) -> None:
        for rows in read_arrivals(path, 0, schema, None):
            parse(rows, schema, needed)

    def read_fastavro(rows: pa.RecordBatch) -> None:
        for message in rows.column(RAW).to_pylist():
            fastavro.schemaless_reader(io.BytesIO(message[PREFIX_BYTES:]), parsed, None)

    def read_vendor(rows: pa.RecordBatch) -> None:
        for message in rows.column(RAW).to_pylist():
            kind.FromString(message[PREFIX_BYTES + 1 :])

    avro = pieces([as_avro(record, parsed) for record in records])
    texts = [with_amount(record, decimal_text) for record in records]
    protobuf = pieces([b"\0\0\0\0\1\0" + filled(kind(), record).SerializeToString() for record in texts])
    return {
        JSON: (read_json, pieces([json.dumps(record).encode() for record in texts])),
        AVRO: (read_avro, avro),
        PROTOBUF: (read_protobuf, protobuf),
        PARQUET: (read_parquet, [parquet(texts, folder / f"{fields}-{nested}.parquet")]),
        FASTAVRO: (read_fastavro, avro),
        VENDOR: (read_vendor, protobuf),
    }


def parquet(records: list[dict[str, Any]], path: Path) -> Path:
    """A file of payments, as one row group."""
    table = pa.Table.from_pylist(records)
    amounts = table["amount"].cast(pa.decimal128(18, 2))
    pq.write_table(table.set_column(table.schema.get_field_index("amount"), "amount", amounts), path)
    return path


def pieces(messages: list[bytes]) -> list[pa.RecordBatch]:
    """Messages as Spark hands them over."""
    found = []
    for first in range(0, len(messages), PIECE):
        part = messages[first : first + PIECE]
        numbers = range(first, first + len(part))
        columns = {SOURCE: ["payments[0]"] * len(part), SOURCE_ORDER: [0] * len(part), POSITION: numbers}
        found.append(pa.record_batch({RAW: pa.array(part, pa.binary())} | {n: pa.array(v) for n, v in columns.items()}))
    return found


def cpu_us(side: Side, count: int) -> float:
    """Return the CPU of one message, as an average."""
    read, given = side
    started_s = time.process_time()
    for piece in given:
        read(piece)
    return (time.process_time() - started_s) / count * 1e6


def bytes_of(side: Side, count: int) -> float:
    """Return the bytes of one message, as an average."""
    total = sum(each.stat().st_size if isinstance(each, Path) else each.column(RAW).nbytes for each in side[1])
    return total / count


def main() -> None:
    """Measure: sides take turns."""
    report = Report("formats", __doc__, repeats=7)
    count = MESSAGES // 20 if report.quick else MESSAGES
    found: dict[str, dict[str, list[float]]] = {}
    lines = []
    with tempfile.TemporaryDirectory(prefix="formats-") as folder:
        for fields, nested in ((fields, nested) for nested in (False, True) for fields in FIELDS):
            name = f"{fields} fields, {'nested' if nested else 'flat'}"
            measured = sides(fields, nested, count, Path(folder))
            for read, given in measured.values():
                read(given[0])
            gc.collect()
            gc.freeze()  # as in a worker: what is there stays, and is not looked through again
            runs: dict[str, list[float]] = {side: [] for side in measured}
            for _ in range(report.repeats):
                for side, reader in measured.items():
                    runs[side].append(cpu_us(reader, count))
            found[name] = runs
            for side, each in runs.items():
                row = [f"{name}, {side}", f"{bytes_of(measured[side], count):,.0f}", f"{statistics.median(each):.2f}"]
                lines.append([*row, ", ".join(f"{us:.2f}" for us in each)])
            for side, most in ((AVRO, 3.0), (PROTOBUF, 1.5)):
                ratio = statistics.median(runs[side]) / statistics.median(runs[JSON])
                report.goal(Goal(f"CPU of a message in {side} by one in JSON, {name}", ratio, at_most=most))
    report.found["us_of_cpu"] = found
    report.table("CPU of a message", ("Side", "Bytes", "us, median", "Runs"), lines)
    report.write(partial(draw, found))


def draw(found: Mapping[str, Mapping[str, list[float]]], axes: Axes) -> None:
    """Draw a bar for each side, a group of them for each shape."""
    for at, side in enumerate(next(iter(found.values()))):
        heights = [statistics.median(runs[side]) for runs in found.values()]
        axes.bar([group * 8 + at for group in range(len(found))], heights, width=1, label=side)
    axes.set_xticks([group * 8 + 2.5 for group in range(len(found))], list(found))
    axes.legend()
    axes.set_ylabel("us of CPU a message")
    axes.set_title("Reading messages, 6 fields used")


if __name__ == "__main__":
    main()
