"""The events of a file as messages for the source topic of a job, each with the key that its field gives it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from buckets.errors import BucketsError
from buckets.events.arrivals import DeadLetter, parse
from buckets.events.event_file import EventFile, file_arrivals, open_event_file, raw_lines
from buckets.events.json_events import fields_of
from buckets.events.schema import EventSchema
from buckets.rule_tests.event_rows import written_events

KeyedMessage = tuple[str, bytes]
"""A key and a value."""


def event_messages(
    path: Path, schema: EventSchema, key: str, on_bad: Callable[[Sequence[DeadLetter]], None]
) -> Iterator[KeyedMessage]:
    """Return the events of a file as messages, in its order.

    Lines, or records, of JSON are sent as they are, also those that are no events. Rows of CSV and Parquet are written
    as JSON, with the fields that the event schema declares.

    Args:
        path: a file that `buckets evaluate` takes.
        schema: the event schema.
        key: the field whose value is the key of a message; a line that has none gets an empty key.
        on_bad: called with rows of CSV or Parquet that are no events, and so are not sent.

    Raises:
        BucketsError: the file cannot be read, or the schema does not declare the field.
    """
    if key not in schema.field_names:
        message = f"--key {key}: event schema {schema.name!r} has no such field; it has {', '.join(schema.field_names)}"
        raise BucketsError(message)
    if key == schema.event_id and schema.identity.is_made:
        message = f"--key {key}: is an id that is made where events are read, and no message has it; name another field"
        raise BucketsError(message)
    if key in schema.arrays:
        message = f"--key {key}: is an array, and the key of a message is one value; name another field"
        raise BucketsError(message)
    file = open_event_file(path, schema)
    if file.kind != "json" and key not in file.fields:
        message = f"--key {key}: {path} has no such column; name another field"
        raise BucketsError(message)
    return _lines(file, schema, key) if file.kind == "json" else _rows(file, schema, key, on_bad)


def _lines(file: EventFile, schema: EventSchema, key: str) -> Iterator[KeyedMessage]:
    for line in raw_lines(file, schema):
        yield _key_of_line(line, key), line


def _key_of_line(line: bytes, key: str) -> str:
    try:
        (value,) = fields_of(line.decode(), [key])
    except ValueError:
        return ""
    return _text(value)


def _rows(
    file: EventFile, schema: EventSchema, key: str, on_bad: Callable[[Sequence[DeadLetter]], None]
) -> Iterator[KeyedMessage]:
    for batch in file_arrivals(file, schema):
        events, dead_letters = parse(batch, schema, frozenset())
        if dead_letters:
            on_bad(dead_letters)
        for row in written_events(events, schema):
            if schema.identity.is_made:
                del row[schema.event_id]
            yield _text(row.get(key)), msgspec.json.encode(row)


def _text(value: object) -> str:
    """Return a value as the text of a key: the same for all spellings of one key of a rule, but for numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ""
