"""What does it cost to read a message, in JSON and in Avro? CPU from the bytes to the columns that are scored.

MessageBytes have 10 or 60 fields, of which 6 are declared: id, time, two texts, a boolean and an amount, as Avro's
decimal or as text in JSON. Behind Avro and JSON there is what a job does: decode, convert, find what is no event. The
last side has the vendor's decoder, fastavro, give each message as a mapping, and nothing more.

    python bench/formats.py [--repeats N] [--quick]
"""

import io
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
from matplotlib.axes import Axes
from report import Goal, Report

from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER, parse
from buckets.events.avro.avro_events import AvroText, read_registered
from buckets.events.json_events import read_events
from buckets.events.schema import EventSchema
from buckets.events.text_lines import as_text
from buckets.events.wire_format import PREFIX_BYTES

FIELDS = (10, 60)
MESSAGES = 100_000
PIECE = 10_000
"""Rows that Spark hands over at once."""
JSON, AVRO, VENDOR = "JSON", "Avro", "fastavro alone"
SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "at",
        "attributes": {"payer": "string", "country": "string", "vip": "boolean"},
        "measures": {"amount": {"scale": 2}},
    }
)
NEEDED = frozenset({"payer", "amount"})
USED: tuple[Mapping[str, Any], ...] = (
    {"name": "id", "type": "string"},
    {"name": "at", "type": "long"},
    {"name": "payer", "type": "string"},
    {"name": "country", "type": ["null", "string"]},
    {"name": "vip", "type": "boolean"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}},
)
OTHERS = ("string", "long", ["null", "string"], "double", "boolean")
"""Types of the fields that nobody uses, in turn."""
Reader = Callable[[pa.RecordBatch], Any]


def avro_schema(fields: int) -> dict[str, Any]:
    """The schema of messages of so many fields; those that are used lie among the others."""
    others = [{"name": f"other_{at}", "type": OTHERS[at % len(OTHERS)]} for at in range(fields - len(USED))]
    every = max(1, len(others) // len(USED))
    named = [*others]
    for at, field in enumerate(USED):
        named.insert(at * (every + 1), dict(field))
    return {"type": "record", "name": "payment", "fields": named}


def payment(rng: random.Random, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A payment; amounts in cents."""
    drawn = {
        "id": f"tx-{rng.randrange(10**12):012}",
        "at": 1_700_000_000_000 + rng.randrange(10**9),
        "payer": f"payer-{rng.randrange(10**6)}",
        "country": rng.choice(["DE", "FR", None]),
        "vip": rng.random() < 0.1,
        "amount": rng.randrange(1, 10**7),
    }
    for field in schema["fields"]:
        match field["type"]:
            case "string":
                drawn.setdefault(field["name"], f"text {rng.randrange(10**9)}")
            case "long":
                drawn.setdefault(field["name"], rng.randrange(10**6))
            case "double":
                drawn.setdefault(field["name"], round(rng.random() * 1000, 3))
            case "boolean":
                drawn.setdefault(field["name"], rng.random() < 0.5)
            case list():
                drawn.setdefault(field["name"], rng.choice([None, "some text"]))
    return {field["name"]: drawn[field["name"]] for field in schema["fields"]}


def as_json(record: Mapping[str, Any]) -> bytes:
    """A payment as JSON, as most producers write it."""
    cents = record["amount"]
    return json.dumps(record | {"amount": f"{cents // 100}.{cents % 100:02}"}).encode()


def as_avro(record: Mapping[str, Any], parsed: Any) -> bytes:
    """A payment as Avro behind the prefix of a registry."""
    out = io.BytesIO(b"\0\0\0\0\1")
    out.seek(PREFIX_BYTES)
    fastavro.schemaless_writer(out, parsed, record | {"amount": record["amount"].to_bytes(8, signed=True)})
    return out.getvalue()


def sides(fields: int, count: int) -> dict[str, tuple[Reader, list[pa.RecordBatch]]]:
    """What reads messages of so many fields, and the messages, by side."""
    rng, schema = random.Random(fields), avro_schema(fields)
    parsed = fastavro.parse_schema(schema)
    records = [payment(rng, schema) for _ in range(count)]
    text = AvroText(json.dumps(schema))
    avro = pieces([as_avro(record, parsed) for record in records])

    def read_json(rows: pa.RecordBatch) -> None:
        parse(read_events(as_text(rows), SCHEMA), SCHEMA, NEEDED)

    def read_avro(rows: pa.RecordBatch) -> None:
        parse(read_registered(rows, SCHEMA, lambda number: text), SCHEMA, NEEDED)

    def read_vendor(rows: pa.RecordBatch) -> None:
        for message in rows.column(RAW).to_pylist():
            fastavro.schemaless_reader(io.BytesIO(message[PREFIX_BYTES:]), parsed, None)

    of_json = pieces([as_json(record) for record in records])
    return {JSON: (read_json, of_json), AVRO: (read_avro, avro), VENDOR: (read_vendor, avro)}


def pieces(messages: list[bytes]) -> list[pa.RecordBatch]:
    """MessageBytes as Spark hands them over."""
    found = []
    for first in range(0, len(messages), PIECE):
        part = messages[first : first + PIECE]
        numbers = range(first, first + len(part))
        columns = {SOURCE: ["payments[0]"] * len(part), SOURCE_ORDER: [0] * len(part), POSITION: numbers}
        found.append(pa.record_batch({RAW: pa.array(part, pa.binary())} | {n: pa.array(v) for n, v in columns.items()}))
    return found


def cpu_us(read: Reader, batches: list[pa.RecordBatch]) -> float:
    """Return the CPU of one message, as an average."""
    started_s = time.process_time()
    for rows in batches:
        read(rows)
    return (time.process_time() - started_s) / sum(map(len, batches)) * 1e6


def main() -> None:
    """Measure: sides take turns."""
    report = Report("formats", __doc__, repeats=7)
    count = MESSAGES // 20 if report.quick else MESSAGES
    found: dict[str, dict[str, list[float]]] = {}
    lines = []
    for fields in FIELDS:
        measured = sides(fields, count)
        for read, batches in measured.values():
            read(batches[0])
        runs: dict[str, list[float]] = {side: [] for side in measured}
        for _ in range(report.repeats):
            for side, (read, batches) in measured.items():
                runs[side].append(cpu_us(read, batches))
        found[str(fields)] = runs
        for side, each in runs.items():
            size = statistics.mean(batch.column(RAW).nbytes / len(batch) for batch in measured[side][1])
            row = [f"{fields} fields, {side}", f"{size:,.0f}", f"{statistics.median(each):.2f}"]
            lines.append([*row, ", ".join(f"{us:.2f}" for us in each)])
        ratio = statistics.median(runs[AVRO]) / statistics.median(runs[JSON])
        report.goal(Goal(f"CPU of a message in Avro by one in JSON, {fields} fields", ratio, at_most=1.0))
    report.found["us_of_cpu"] = found
    report.table("CPU of a message", ("Side", "Bytes", "us, median", "Runs"), lines)
    report.write(partial(draw, found))


def draw(found: Mapping[str, Mapping[str, list[float]]], axes: Axes) -> None:
    """Draw a bar for each side."""
    names = [f"{fields} fields\n{side}" for fields, runs in found.items() for side in runs]
    axes.bar(names, [statistics.median(each) for runs in found.values() for each in runs.values()])
    axes.set_ylabel("us of CPU a message")
    axes.set_title("Reading messages, 6 fields used")


if __name__ == "__main__":
    main()
