"""A verdict: a person's finding about an alert, or an event without one; and which of several verdicts counts."""

import contextlib
import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import sqrt
from pathlib import Path
from typing import Any, Literal, cast, get_args

from buckets.audit.tables import audit_tables, read_message
from buckets.errors import BucketsError, first_line
from buckets.json_text import write_json
from buckets.moment import moment_ms
from buckets.numbers.fixed_point import parse_decimal
from buckets.outputs.columns import VERDICTS
from buckets.outputs.output import Row
from buckets.printable import quoted, short_line

Finding = Literal["fraud", "legitimate", "unclear"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)
VERSION = 1
NAMES = ("id", "alert_id", "event_id", "verdict", "by", "note", "made_at", "rule_id", "event_time", "key", "amount")
ATTRIBUTES = {"made_at": "made_at_ms", "event_time": "event_time_ms"}
TABLE = audit_tables([VERDICTS])[VERDICTS]  # The table into which the audit writes verdicts that come through a topic


@dataclass(frozen=True)
class Verdict:
    """A finding about an alert or an event."""

    id: str  # its identity; what comes again with the same one is a repeat
    verdict: Finding  # what was found
    by: str  # who has found it
    made_at_ms: int  # when, in ms since the epoch
    alert_id: str | None = None  # the alert; None where the event raised none
    event_id: str | None = None  # the event; None where only the alert is known
    note: str | None = None  # what else there is to say
    rule_id: str | None = None  # the rule of the alert, where known
    event_time_ms: int | None = None  # when the event happened, where known
    key: Mapping[str, Any] | None = None  # the key of the alert, or fields of the event, where known
    amount: Decimal | None = None  # of the event, where it was given

    @property
    def subject(self) -> tuple[str | None, str | None]:
        """Return its subject: an alert, or an event. Of several verdicts on one subject the latest counts."""
        return (self.alert_id, None) if self.alert_id is not None else (None, self.event_id)

    @property
    def age(self) -> tuple[int, str]:
        """Return the sort key of verdicts: their time, then their id."""
        return self.made_at_ms, self.id

    def as_dict(self) -> dict[str, Any]:
        """Return its fields by name, timestamps in ms since the epoch."""
        return {name: getattr(self, ATTRIBUTES.get(name, name)) for name in NAMES}

    def message(self) -> str:
        """Return the verdict as the value of a message; see `schemas/verdict-v1.json`."""
        amount = None if self.amount is None else format(self.amount, "f")
        key = None if self.key is None else dict(self.key)
        fields = {"version": VERSION, **self.as_dict(), "key": key, "amount": amount}
        return write_json(fields)

    def row(self) -> Row:
        """Return the verdict as a row of a table, exactly as the audit would store its message.

        Raises:
            ValueError: it does not fit the schema; says which field, and why.
        """
        try:
            return read_message(TABLE, self.message().encode())
        except UnicodeEncodeError:
            message = "holds half of a character, a lone surrogate"
            raise ValueError(message) from None


def identity(subject: tuple[str | None, str | None], verdict: str, by: str, made_at_ms: int, note: str | None) -> str:
    """Return the id of a verdict, the same for equal verdicts, so that reading a file twice changes nothing."""
    parts = json.dumps([*subject, verdict, by, made_at_ms, note or ""])
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


FIELDS = ("alert_id", "event_id", "verdict", "by", "note", "made_at", "event_time", "key", "amount")
"""The possible fields of a verdict."""
_FIRST_MS = 946_684_800_000  # The year 2000: seconds that are taken for milliseconds lie before it


def written_verdict(fields: Mapping[str, Any], by: str | None, now_ms: int) -> Verdict:
    """Parse a verdict from its fields, where empty means left out. Timestamps are ISO 8601, or ms since 1970.

    The defaults of author and time are `by` and `now_ms`; a later time is invalid.

    Raises:
        ValueError: it is not a verdict; says why.
    """
    unknown = next((name for name in fields if name not in FIELDS), None)
    if unknown is not None:
        message = f"{short_line(str(unknown))}: unknown field; there are {', '.join(FIELDS)}"
        raise ValueError(message)
    given = {name: value for name, value in fields.items() if value is not None and value != ""}
    made_ms = _moment("made_at", given.get("made_at", now_ms))
    if made_ms > now_ms:
        message = f"made_at: {given['made_at']} is yet to come; a verdict of the future would count for ever"
        raise ValueError(message)
    if made_ms < _FIRST_MS:
        message = f"made_at: {given['made_at']} is before the year 2000; write ms since 1970, not seconds, or ISO 8601"
        raise ValueError(message)
    subject = given.get("alert_id"), given.get("event_id")
    if subject == (None, None):
        message = "names neither alert_id nor event_id; say what it is about"
        raise ValueError(message)
    about = (subject[0], None) if subject[0] is not None else subject
    note, author = given.get("note"), given.get("by", by)
    text = note.replace("\r\n", "\n") if isinstance(note, str) else note
    author = author.strip() if isinstance(author, str) else author
    time_ms = None if "event_time" not in given else _moment("event_time", given["event_time"])
    verdict = Verdict(
        id=identity(about, given.get("verdict", ""), author or "", made_ms, text),
        verdict=cast(Finding, given.get("verdict")),
        by=author or "",
        made_at_ms=made_ms,
        alert_id=subject[0],
        event_id=subject[1],
        note=text,
        event_time_ms=time_ms,
        key=_key(given.get("key")),
        amount=_amount(given.get("amount")),
    )
    verdict.row()
    return verdict


def read_verdict_file(path: Path, by: str | None, now_ms: int) -> dict[int, Verdict | str]:
    """Read the verdicts of a .csv file with a header line, or a .jsonl file, and the faults of other lines.

    Both are returned by line number, from 1; for a record of several lines, its first. The defaults of author and time
    are `by` and `now_ms`.
    """
    if path.suffix not in (".csv", ".jsonl"):
        message = f"verdicts {path}: is neither .csv nor .jsonl; name a file of one of these kinds"
        raise BucketsError(message)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        message = f"verdicts {path}: cannot be read ({error.strerror}); see that it is there and who may read it"
        raise BucketsError(message) from None
    except UnicodeDecodeError as error:
        message = f"verdicts {path}: is not valid UTF-8 at byte {error.start}; save it as UTF-8"
        raise BucketsError(message) from None
    if path.suffix == ".csv" and not text.strip():
        message = f"verdicts {path}: is empty; the first line names the columns, some of {', '.join(FIELDS)}"
        raise BucketsError(message)
    lines, first = dict[int, Verdict | str](), dict[tuple[Any, ...], tuple[int, str]]()
    for number, fields in _csv_records(path, text) if path.suffix == ".csv" else _json_records(text):
        try:
            line: Verdict | str = fields if isinstance(fields, str) else written_verdict(fields, by, now_ms)
        except (ValueError, TypeError, AttributeError) as error:
            line = first_line(error)
        if isinstance(line, Verdict):
            # If two contradict each other at one moment, neither is the latest.
            finding = line.verdict
            before, earlier = first.setdefault((*line.subject, line.made_at_ms), (number, finding))
            if earlier != finding:
                remedy = "say with made_at which is the later one"
                line = f"says {finding}, and line {before} says {earlier} of the same; {remedy}"
        lines[number] = line
    if path.suffix == ".csv" and not lines:
        message = f"verdicts {path}: is empty below its first line, which names the columns; write a verdict a line"
        raise BucketsError(message)
    return lines


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    number = 1
    try:
        for cells in reader:
            if header is None:
                header = [cell.strip() for cell in cells]
                what = None if "verdict" in header else "has no column verdict"
                what = next((f"has the column {name} twice" for name in header if header.count(name) > 1), what)
                unknown = (f"has an unknown column {quoted(name)}" for name in header if name not in FIELDS)
                what = next(unknown, what)
                if what is not None:
                    message = f"verdicts {path}:1: {what}; columns are {', '.join(FIELDS)}"
                    raise BucketsError(message)
            elif len(cells) != len(header) and cells:
                yield number, f"has {len(cells)} of {len(header)} columns"
            elif cells:
                yield number, dict(zip(header, cells, strict=True))
            number = reader.line_num + 1
    except csv.Error as error:
        yield number, f"is broken CSV ({first_line(error)})"


def _json_records(text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, f"is broken JSON ({first_line(error)})"
            continue
        yield number, fields if isinstance(fields, dict) else "is not a JSON object"


def _moment(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value.removeprefix("-").isdecimal() and value.isascii() and len(value) > len("20260103"):
            return int(value)
        try:
            return moment_ms(datetime.fromisoformat(value))
        except (ValueError, OverflowError):
            pass
    message = (
        f"{name}: {short_line(str(value))} is not a time; write ISO 8601 as in 2026-01-03T10:00Z, or ms since 1970"
    )
    raise ValueError(message)


def _key(value: Any) -> Mapping[str, Any] | None:
    key = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            key = json.loads(value)
    if key is not None and not isinstance(key, dict):
        message = 'key: is not a JSON object; write it as in {"payerId": "p1"}'
        raise ValueError(message)
    wrong = next((name for name, field in (key or {}).items() if not isinstance(field, str | int | bool)), None)
    if wrong is not None:
        message = f"key: {short_line(wrong)} must be a text, a whole number, true or false"
        raise ValueError(message)
    return key


def _amount(value: Any) -> Decimal | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        message = f"amount: {short_line(str(value))} is not a decimal number"
        raise ValueError(message)
    try:
        return parse_decimal(str(value))
    except ValueError as error:
        message = f"amount: {error}"
        raise ValueError(message) from None


@dataclass(frozen=True)
class Findings:
    """The verdicts that count."""

    by_alert: dict[str, Verdict]  # the latest verdict on each alert
    # of each event the latest of those that count on it and on its alerts; one that is unclear only where there is no
    # other
    by_event: dict[str, Verdict]

    def of(self, alert_id: str, event_id: str) -> Verdict | None:
        """Return the verdict on an alert: the latest on the alert itself, otherwise the one that counts for its event.

        A payment is fraud or not, whichever rule found it. So an alert of a rule on trial, which nobody reviews, shares
        the verdict of an alert in force on the same event.
        """
        return self.by_alert.get(alert_id) or self.by_event.get(event_id)


def findings(verdicts: Iterable[Verdict]) -> Findings:
    """Return the verdicts that count, from verdicts in any order."""
    latest: dict[tuple[str | None, str | None], Verdict] = {}
    for verdict in verdicts:
        known = latest.get(verdict.subject)
        if known is None or verdict.age > known.age:
            latest[verdict.subject] = verdict
    by_event: dict[str, Verdict] = {}
    # The weightiest last: an unclear one counts only without others.
    for verdict in sorted(latest.values(), key=lambda verdict: (verdict.verdict != "unclear", verdict.age)):
        if verdict.event_id is not None:
            by_event[verdict.event_id] = verdict
    by_alert = {verdict.alert_id: verdict for verdict in latest.values() if verdict.alert_id is not None}
    return Findings(by_alert, by_event)


_Z = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations of the mean


@dataclass(frozen=True)
class ShareInterval:
    """A share, as a number from 0 to 1."""

    share: float  # that of the sample
    low: float  # the lower end of the interval that holds the true share with 95 % confidence
    high: float  # its upper end


def wilson(hits: int, count: int) -> ShareInterval | None:
    """Return the share of hits, with Wilson's interval; None for a count of 0.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). Unlike
    the usual interval it stays within 0 and 1, and is meaningful for few or no hits.
    """
    if not count:
        return None
    share, squared = hits / count, _Z * _Z
    centre = (hits + squared / 2) / (count + squared)
    half = _Z / (count + squared) * sqrt(hits * (count - hits) / count + squared / 4)
    # At the ends only rounding keeps the sum from being exact.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == count else min(1.0, centre + half)
    return ShareInterval(share, low, high)
