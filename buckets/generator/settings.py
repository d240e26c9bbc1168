"""What a generated stream shall be like and where it is written; checked when made."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.moment import moment_ms

MOST_TRANSACTIONS = 20_000_000
MOST_DAYS = 3_660
MOST_ENTITIES = 5_000_000
MOST_DISORDER = 0.5
MOST_MALFORMED = 0.5
LONGEST_DELAY_MS = 7 * DAY_MS
TRANSACTIONS_PER_CASE = 200  # For each case of all four patterns: up to 100 planted, and at least as many that are not
PAYERS_PER_CASE = 20
BENEFICIARIES_PER_CASE = 10
FEWEST_PAYERS = 100
FEWEST_BENEFICIARIES = 20
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def _refuse_outside(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        message = f"generator: {name} is {value}; the limits are {low:,} and {high:,}: choose one in between"
        raise BucketsError(message)


@dataclass(frozen=True)
class GeneratorSettings:
    """All that decides a stream: the same settings give the same bytes."""

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
        """Refuse what cannot be generated."""
        _refuse_outside("seed", self.seed, 0, 2**63 - 1)
        _refuse_outside("transactions", self.transactions, 1, MOST_TRANSACTIONS)
        _refuse_outside("days", self.days, 1, MOST_DAYS)
        _refuse_outside("payers", self.payers, FEWEST_PAYERS, MOST_ENTITIES)
        _refuse_outside("beneficiaries", self.beneficiaries, FEWEST_BENEFICIARIES, MOST_ENTITIES)
        _refuse_outside("cards", self.cards, self.payers, MOST_ENTITIES)
        _refuse_outside("max_delay_ms", self.max_delay_ms, 1_000, LONGEST_DELAY_MS)
        _refuse_outside("rows_per_file", self.rows_per_file, 1, MOST_TRANSACTIONS)
        self._check_rates()
        self._check_fraud()
        self._check_times()

    def _check_rates(self) -> None:
        for name in ("late_rate", "duplicate_rate", "collision_rate", "malformed_rate"):
            _refuse_outside(name, getattr(self, name), 0, 1)
        together = self.late_rate + self.duplicate_rate + self.collision_rate
        if together > MOST_DISORDER:
            message = (
                f"generator: late_rate, duplicate_rate and collision_rate together are {together:g}; the "
                f"limit is {MOST_DISORDER:g}, because one transaction gets at most one of them: lower a rate"
            )
            raise BucketsError(message)
        if self.malformed_rate > MOST_MALFORMED:
            message = f"generator: malformed_rate is {self.malformed_rate:g}; the limit is {MOST_MALFORMED:g}: lower it"
            raise BucketsError(message)

    def _check_fraud(self) -> None:
        cases = self.fraud_cases
        if cases < 0:
            message = f"generator: fraud_cases is {cases}; the limit is 0: choose 0 for a stream without fraud"
            raise BucketsError(message)
        needs = {
            "transactions": (self.transactions, TRANSACTIONS_PER_CASE),
            "payers": (self.payers, PAYERS_PER_CASE),
            "beneficiaries": (self.beneficiaries, BENEFICIARIES_PER_CASE),
        }
        for name, (given, per_case) in needs.items():
            if given < cases * per_case:
                message = (
                    f"generator: {given:,} {name} are too few for {cases} planted cases of each pattern, "
                    f"which need {cases * per_case:,}: raise {name}, or lower fraud_cases to "
                    f"{given // per_case}"
                )
                raise BucketsError(message)

    def _check_times(self) -> None:
        if self.start_ms < moment_ms(EARLIEST) or self.end_ms > moment_ms(LATEST):
            message = (
                f"generator: {self.days} days from {self.start_time} do not lie in {EARLIEST:%Y-%m-%d} to "
                f"{LATEST:%Y-%m-%d}: choose another start_time or fewer days"
            )
            raise BucketsError(message)

    @property
    def start_ms(self) -> int:
        """The first possible event time, in ms since the epoch."""
        try:
            return moment_ms(datetime.fromisoformat(self.start_time))
        except ValueError:
            message = (
                f"generator: start_time {self.start_time!r} is no ISO 8601 time; write it as in 2026-01-01T00:00:00Z"
            )
            raise BucketsError(message) from None

    @property
    def end_ms(self) -> int:
        """The first time after the stream, in ms since the epoch."""
        return self.start_ms + self.days * DAY_MS


Form = Literal["folder", "jsonl", "csv", "parquet"]
_FORM_BY_ENDING: dict[str, Form] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_MISTAKEN_ENDINGS = (".json", ".ndjson", ".txt", ".gz")
_OWN_FILE = re.compile(r"transactions-\d{5,}\.jsonl|\.transactions-\d{5,}\.jsonl\.part")


@dataclass(frozen=True)
class Destination:
    """Where a stream may be written: a folder or file, and the truth.

    The truth is next to a folder, not in it, where a reader of the stream would take it for events.
    """

    path: Path
    form: Form
    truth: Path

    def file(self, number: int) -> Path:
        """Return a numbered file of the folder."""
        return self.path / f"transactions-{number:05d}.jsonl"

    def stale_files(self) -> list[Path]:
        """Return the files of an earlier stream in the folder."""
        if self.form != "folder" or not self.path.exists():
            return []
        return sorted(entry for entry in self.path.iterdir() if _OWN_FILE.fullmatch(entry.name))


def destination(out: Path, malformed: bool, overwrite: bool) -> Destination:
    """Check a destination before anything is generated for it.

    Args:
        out: a path that ends with .jsonl, .csv or .parquet is one file, any other a folder.
        malformed: whether there are broken lines to write.
        overwrite: whether an earlier stream may be replaced.

    Raises:
        BucketsError: the destination is taken, or cannot hold the stream.
    """
    try:
        return _checked(out, malformed, overwrite)
    except OSError as error:
        message = f"output {out}: cannot be read: {error.strerror or error}; choose another path"
        raise BucketsError(message) from error


def _checked(out: Path, malformed: bool, overwrite: bool) -> Destination:
    path = out.resolve()
    ending = path.suffix.lower()
    form = _FORM_BY_ENDING.get(ending, "folder")
    if form == "folder" and ending in _MISTAKEN_ENDINGS:
        message = f"output {out}: {ending} is not written; use .jsonl, .csv or .parquet, or name a folder"
        raise BucketsError(message)
    if malformed and form in ("csv", "parquet"):
        message = (
            f"output {out}: malformed lines can stand in JSON lines only; write .jsonl or a folder, "
            "or set the malformed rate to 0"
        )
        raise BucketsError(message)
    if path.exists() and path.is_dir() != (form == "folder"):
        kinds = ("a folder", "a file") if path.is_dir() else ("a file", "a folder")
        message = f"output {out}: is {kinds[0]}, not {kinds[1]}; choose another path"
        raise BucketsError(message)
    stem = path.name if form == "folder" else path.stem
    target = Destination(path, form, path.with_name(f"{stem}.truth.jsonl") if stem else path)
    _refuse_taken(target, out, overwrite)
    return target


def _refuse_taken(target: Destination, out: Path, overwrite: bool) -> None:
    is_folder = target.path.is_dir()
    entries = list(target.path.iterdir()) if is_folder else []
    taken = bool(entries) if is_folder else target.path.exists() and target.path.stat().st_size > 0
    if not overwrite and (taken or target.truth.exists()):
        what = f"{out} is not empty" if taken else f"{target.truth} exists"
        message = f"output {out}: {what}; choose another path, or allow it to be replaced (--overwrite)"
        raise BucketsError(message)
    foreign = [entry.name for entry in entries if not _OWN_FILE.fullmatch(entry.name)]
    if foreign:
        message = (
            f"output {out}: holds {sorted(foreign)[0]!r}, which is no file of a generated stream; "
            "choose another folder, or move it away"
        )
        raise BucketsError(message)
