"""The settings of a generated stream and its destination; checked on creation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.moment import moment_ms

_MOST_ROWS, _MOST_PEOPLE = 20_000_000, 5_000_000
_LIMITS: dict[str, tuple[int, int]] = {
    "seed": (0, 2**63 - 1),
    "transactions": (1, _MOST_ROWS),
    "days": (1, 3_660),
    "payers": (100, _MOST_PEOPLE),
    "beneficiaries": (20, _MOST_PEOPLE),
    "cards": (0, _MOST_PEOPLE),  # and at least as many as payers
    "max_delay_ms": (1_000, 7 * DAY_MS),
    "rows_per_file": (1, _MOST_ROWS),
    **dict.fromkeys(("late_rate", "duplicate_rate", "collision_rate", "malformed_rate"), (0, 1)),
}
_MOST_DISORDER, _MOST_MALFORMED = 0.5, 0.5
_PER_CASE = {"transactions": 200, "payers": 20, "beneficiaries": 10}
"""What a case of all four patterns needs: up to 100 transactions are planted, and at least as many are not."""
_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class GeneratorSettings:
    """The settings that determine a stream: the same settings give the same bytes."""

    seed: int = 7  # of every random draw; 0 or more
    # different transactions, planted ones included. Collisions, duplicates and malformed lines come on top, each as
    # many as its rate times this.
    transactions: int = 200_000
    days: int = 30  # length of the stream
    start_time: str = "2026-01-01T00:00:00Z"  # ISO 8601; without a zone it is UTC
    payers: int = 20_000  # people who may pay; many do so rarely
    beneficiaries: int = 2_000  # who may be paid; a few are very busy
    cards: int = 26_000  # at least one for every payer
    fraud_cases: int = 5  # planted cases of each pattern
    late_rate: float = 0.005  # share of transactions that arrive after later ones
    max_delay_ms: int = 1_800_000  # the longest delay of a late transaction
    duplicate_rate: float = 0.002  # share of transactions whose very same line comes again a little later
    collision_rate: float = 0.001  # share of transactions that share payer, beneficiary, card and time with another one
    malformed_rate: float = 0.0  # share of broken lines
    rows_per_file: int = 20_000  # lines in one file of a folder

    def __post_init__(self) -> None:
        for fault in self._faults():
            message = f"generator: {fault}"
            raise BucketsError(message)

    def _faults(self) -> Iterator[str]:
        for name, (low, high) in _LIMITS.items():
            value, least = getattr(self, name), self.payers if name == "cards" else low
            if not least <= value <= high:
                yield f"{name} is {value}; the limits are {least:,} and {high:,}: choose one in between"
        together = self.late_rate + self.duplicate_rate + self.collision_rate
        if together > _MOST_DISORDER:
            yield (
                f"late_rate, duplicate_rate and collision_rate together are {together:g}; the limit is "
                f"{_MOST_DISORDER:g}, because one transaction gets at most one of them: lower a rate"
            )
        if self.malformed_rate > _MOST_MALFORMED:
            yield f"malformed_rate is {self.malformed_rate:g}; the limit is {_MOST_MALFORMED:g}: lower it"
        cases = self.fraud_cases
        if cases < 0:
            yield f"fraud_cases is {cases}; the limit is 0: choose 0 for a stream without fraud"
        for name, per_case in _PER_CASE.items():
            given = getattr(self, name)
            if given < cases * per_case:
                yield (
                    f"{given:,} {name} are too few for {cases} planted cases of each pattern, which need "
                    f"{cases * per_case:,}: raise {name}, or lower fraud_cases to {given // per_case}"
                )
        if self.start_ms < moment_ms(_EARLIEST) or self.end_ms > moment_ms(_LATEST):
            yield (
                f"{self.days} days from {self.start_time} do not lie in {_EARLIEST:%Y-%m-%d} to {_LATEST:%Y-%m-%d}: "
                "choose another start_time or fewer days"
            )

    @property
    def start_ms(self) -> int:
        """The first possible event time, in ms since the epoch."""
        try:
            return moment_ms(datetime.fromisoformat(self.start_time))
        except ValueError:
            message = (
                f"generator: start_time {self.start_time!r} is not an ISO 8601 time; write it as in "
                "2026-01-01T00:00:00Z"
            )
            raise BucketsError(message) from None

    @property
    def end_ms(self) -> int:
        """The first time after the stream, in ms since the epoch."""
        return self.start_ms + self.days * DAY_MS


Form = Literal["folder", "jsonl", "csv", "parquet"]
_FORM_BY_ENDING: dict[str, Form] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_MISTAKEN_ENDINGS = (".json", ".ndjson", ".txt", ".gz")
OWN_FILE = re.compile(r"transactions-\d{5,}\.jsonl|\.transactions-\d{5,}\.jsonl\.part")


@dataclass(frozen=True)
class Destination:
    """Where a stream may be written: a folder or file, and the truth.

    The truth is next to a folder, not in it, where a reader of the stream would take it for events.
    """

    path: Path
    form: Form
    truth: Path


def destination(out: Path, malformed: bool, overwrite: bool) -> Destination:
    """Check a destination before generating anything; `malformed` says whether there are broken lines.

    A path that ends with .jsonl, .csv or .parquet is one file, any other a folder.
    """
    try:
        fault, target = _checked(out, malformed, overwrite)
    except OSError as error:
        message = f"output {out}: cannot be read: {error.strerror or error}; choose another path"
        raise BucketsError(message) from error
    if fault:
        message = f"output {out}: {fault}"
        raise BucketsError(message)
    return target


def _checked(out: Path, malformed: bool, overwrite: bool) -> tuple[str, Destination]:
    """Return the fault of a destination, empty without one, and the destination."""
    path = out.resolve()
    ending = path.suffix.lower()
    form = _FORM_BY_ENDING.get(ending, "folder")
    stem = path.name if form == "folder" else path.stem
    target = Destination(path, form, path.with_name(f"{stem}.truth.jsonl") if stem else path)
    entries = list(path.iterdir()) if path.is_dir() else []
    taken = bool(entries) if path.is_dir() else path.exists() and path.stat().st_size > 0
    foreign = sorted(entry.name for entry in entries if not OWN_FILE.fullmatch(entry.name))
    fault = ""
    if form == "folder" and ending in _MISTAKEN_ENDINGS:
        fault = f"{ending} is not written; use .jsonl, .csv or .parquet, or name a folder"
    elif malformed and form in ("csv", "parquet"):
        fault = "only JSON lines can have malformed lines; write .jsonl or a folder, or set the malformed rate to 0"
    elif path.exists() and path.is_dir() != (form == "folder"):
        kinds = ("a folder", "a file") if path.is_dir() else ("a file", "a folder")
        fault = f"is {kinds[0]}, not {kinds[1]}; choose another path"
    elif not overwrite and (taken or target.truth.exists()):
        what = f"{out} is not empty" if taken else f"{target.truth} exists"
        fault = f"{what}; choose another path, or allow it to be replaced (--overwrite)"
    elif foreign:
        fault = f"holds {foreign[0]!r}, which is not from a generated stream; choose another folder, or move it away"
    return fault, target
