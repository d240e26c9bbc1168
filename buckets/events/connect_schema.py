"""The schema that Kafka Connect puts beside the payload of a JSON message: it defines decimals and times.

A decimal is a whole number as base64 of its bytes, or an object with these and a scale; a time is a number in a unit
that the schema names. Both become text: decimals with all digits, times in the unit of their field. Without a schema a
text such as `1234` could be four digits or three bytes, and is refused.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

import contextlib
import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from buckets.duration import DAY_MS
from buckets.events import conversion
from buckets.events.decoded import YEAR_10000_S, decimals, fitted
from buckets.events.field_paths import Path, name_of, path_of, steps_of, walk
from buckets.events.json_events import Fields, read_object
from buckets.events.json_records import json_text
from buckets.events.schema import EventSchema
from buckets.printable import short_line

Convert = Callable[[Any], Any]  # Converts a value to text; raises ValueError for a value of another type
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_ZONED = "io.debezium.time.ZonedTimestamp"
_PER_MS = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1,
}
"""By type of a time, its ticks in a millisecond."""
_OF_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_INTEGER = re.compile(r"-?\d{1,40}", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")


class ConnectValues:
    """Converts fields of JSON objects to text, by the Connect schema beside them."""

    def __init__(self, within: Path, names: Mapping[str, str], schema: EventSchema, digits: bool) -> None:
        """Convert the fields `names`, each with its name in the object at the path `within` of a message.

        With `digits`, a text in a numeric field without a schema is taken for digits.
        """
        self._within, self._schema = within, schema
        self._names = {name: called for name, called in names.items() if name not in schema.arrays}
        numbers = {*schema.measures, *(name for name, kind in schema.attributes.items() if kind == "long")}
        self._doubtful = {} if digits else {name: called for name, called in names.items() if name in numbers}
        last = "|".join(sorted({re.escape(steps_of(called)[-1]) for called in self._doubtful.values()}))
        self._text = re.compile(rf'(?:{last})"\s*:\s*\[?\s*"[A-Za-z0-9+/=]{{4}}|\\'.encode())
        self._known: dict[bytes, tuple[dict[Path, Convert], dict[str, str]]] = {}

    def written(self, text: bytes, connect: bytes | None) -> bytes:
        """Convert the fields of a JSON object by the schema beside it; ValueError names a value that does not fit."""
        if not self._names:
            return text
        converts, untold = self._of(connect)
        if untold and self._text.search(text):
            _check_digits(json.loads(text), untold)
        if not converts:
            return text
        return json_text(_replaced(read_object(text.decode()), converts)).encode()

    def _of(self, connect: bytes | None) -> tuple[dict[Path, Convert], dict[str, str]]:
        """Return the conversions by path, and the numeric fields of which the schema says nothing."""
        if connect is None:
            return {}, self._doubtful
        if connect not in self._known:
            around, found, untold = _field_at(_read(connect), self._within), dict[Path, Convert](), dict[str, str]()
            for name, called in self._names.items():
                paths = {path: _field_at(around, path) for path in ((called,), path_of(called))}
                told = {path: kind for path, kind in paths.items() if kind is not None}
                for path, kind in told.items():
                    convert = _conversion(name, kind, self._schema)
                    found |= {} if convert is None else {path: convert}
                if not told and name in self._doubtful:
                    untold[name] = called
            self._known[connect] = found, untold
        return self._known[connect]


def _read(connect: bytes) -> Any:
    try:
        return json.loads(connect)
    except (ValueError, RecursionError):
        message = "schema: is not a schema of Kafka Connect"
        raise ValueError(message) from None


def _field_at(kind: Any, path: Path) -> Any:
    """Return the type at a path inside another type; None if it is missing."""
    for step in path:
        if isinstance(step, int):
            kind = kind.get("items") if isinstance(kind, dict) else None
            continue
        fields = kind.get("fields") if isinstance(kind, dict) else None
        listed = fields if isinstance(fields, list) else []
        kind = next((each for each in listed if isinstance(each, dict) and each.get("field") == step), None)
    return kind if isinstance(kind, dict) else None


def _conversion(name: str, kind: Mapping[str, Any], schema: EventSchema) -> Convert | None:
    """Return the conversion of a type for a field; None if its values stay unchanged."""
    meaning = kind.get("name")
    if schema.is_time(name) and meaning in (*_PER_MS, *_OF_DAYS, _ZONED):
        return partial(_time_text, meaning, schema)
    if meaning == _VARIABLE:
        return _variable_text
    if kind.get("type") != "bytes":
        return None
    if meaning == _DECIMAL:
        parameters = kind.get("parameters")
        return partial(_decimal_text, _integer(parameters.get("scale")) if isinstance(parameters, dict) else None)
    return None if schema.holds_text(name) else _refuse_bytes


def _integer(value: Any) -> int | None:
    """Return a number, or its text, as an integer; None for anything else."""
    return int(str(value)) if _INTEGER.fullmatch(str(value)) else None


def _refuse_bytes(value: Any) -> str:
    del value
    message = "is bytes, and the schema beside it does not say that they are a decimal"
    raise ValueError(message)


def _decimal_text(scale: int | None, value: Any) -> str:
    if scale is None:
        message = "is a decimal, and the schema beside it does not say its scale"
        raise ValueError(message)
    try:
        content = b64decode(value, validate=True)
    except (TypeError, ValueError):
        content = b""
    if not content:
        message = f"{short_line(repr(value))} is not a decimal in base64, as the schema beside it says"
        raise ValueError(message)
    texts, faults = decimals([content], [scale])
    if faults:
        raise ValueError(faults[0])
    return str(texts[0])


def _variable_text(value: Any) -> str:
    parts = dict(value) if isinstance(value, Fields) else {}
    return _decimal_text(_integer(parts.get("scale")), parts.get("value"))


def _time_text(meaning: str, schema: EventSchema, value: Any) -> str:
    declared = schema.event_time
    if meaning == _ZONED:
        times_ms, faults = conversion.times_ms(pa.array([str(value)]), declared.model_copy(update={"unit": "iso8601"}))
        if faults:
            raise ValueError(faults[0])
        time_ms = int(times_ms[0])
    else:
        ticks = _integer(value)
        if ticks is None:
            message = f"{short_line(repr(value))} is not a number, as a time of type {meaning} is"
            raise ValueError(message)
        time_ms = ticks * DAY_MS if meaning in _OF_DAYS else ticks // _PER_MS[meaning]
    if abs(time_ms) >= YEAR_10000_S * 1000:
        message = f"{short_line(repr(value))} is an absurd time: outside {declared.limits}"
        raise ValueError(message)
    moments, _ = fitted(declared.field, pa.array([time_ms], pa.timestamp("ms", "UTC")), {}, schema)
    return str(conversion.attributes(moments, "string")[0][0])


def _replaced(value: Any, converts: Mapping[Path, Convert], at: Path = ()) -> Any:
    if isinstance(value, list):
        return [_member((*at, number), member, converts) for number, member in enumerate(value)]
    if not isinstance(value, Fields):
        return value
    return Fields((name, _member((*at, name), member, converts)) for name, member in value)


def _member(path: Path, member: Any, converts: Mapping[Path, Convert]) -> Any:
    if member is None or path not in converts:
        is_on_the_way = any(other[: len(path)] == path for other in converts)
        return _replaced(member, converts, path) if is_on_the_way else member
    try:
        return converts[path](member)
    except ValueError as error:
        message = f"{name_of(path)}: {error}"
        raise ValueError(message) from None


def _check_digits(event: Any, names: Mapping[str, str]) -> None:
    """Refuse a text in a numeric field, which may be a decimal in base64."""
    for name, called in names.items():
        value = event.get(called) if isinstance(event, dict) else None
        if value is None:
            with contextlib.suppress(TypeError):
                value = walk(event, path_of(called))
        if isinstance(value, str) and value and _BASE64.fullmatch(value):
            message = (
                f"{name}: {short_line(repr(value))} may be digits, or a decimal in base64, whose scale no schema says; "
                "give the connector decimal.handling.mode=string and say `decimals: string` under source, or let its "
                "converter write schemas"
            )
            raise ValueError(message)
