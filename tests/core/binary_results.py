"""Results in Avro and Protobuf, as the vendors' decoders read them, back in the form that JSON has."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import Message

from buckets.events.protobuf.wanted import is_map

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_avro(value: Any) -> Any:
    """What a value says: times in ms."""
    match value:
        case datetime():
            return (value - EPOCH) // timedelta(milliseconds=1)
        case dict():
            return {name: of_avro(each) for name, each in value.items()}
        case list():
            return [of_avro(each) for each in value]
    return value


def of_protobuf(message: Message) -> Any:
    """What a message says; None for what is not there."""
    if message.DESCRIPTOR.name == "Scalar":
        kind = message.WhichOneof("kind")
        return None if kind is None else getattr(message, kind)
    if message.DESCRIPTOR.name == "Fields":
        return list(message.names)
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return message.ToMilliseconds()
    return {field.name: _of_field(message, field) for field in message.DESCRIPTOR.fields}


def _of_field(message: Message, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if is_map(field):
        return {name: of_protobuf(each) for name, each in value.items()}
    if field.is_repeated:
        return [of_protobuf(each) if isinstance(each, Message) else each for each in value]
    return of_protobuf(value) if isinstance(value, Message) else value


def comparable(shown: Mapping[str, Any], is_protobuf: bool = False) -> dict[str, Any]:
    """A message without what is null or left out, which binary formats do not tell apart; filters and arrays as JSON.

    In Protobuf a list that is empty is not there either.
    """
    chosen = {name: each for name, each in shown.items() if each is not None and not (is_protobuf and each == [])}
    if "event" in chosen:
        named = chosen["event"].items()
        texts = {name: json.dumps(each, ensure_ascii=False) for name, each in named if isinstance(each, list)}
        chosen["event"] = chosen["event"] | texts
    if chosen.get("terms"):
        chosen["terms"] = [comparable(_with_filter(term)) for term in chosen["terms"]]
    return chosen


def _with_filter(term: Mapping[str, Any]) -> dict[str, Any]:
    where = term.get("where")
    is_text = where is None or isinstance(where, str)
    return {**term, "where": where if is_text else json.dumps(where, ensure_ascii=False)}
