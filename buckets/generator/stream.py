"""A generated stream: transactions in arrival order with broken lines among them, and the truth beside it."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from buckets.errors import BucketsError
from buckets.generator.fraud import draw_cases
from buckets.generator.settings import OWN_FILE, Destination, GeneratorSettings, destination
from buckets.generator.transactions import (
    FIELD_NAMES,
    PAYMENT_TYPES,
    Integers,
    PlantedCase,
    Transactions,
    amount_text,
    beneficiary_id,
    card_id,
    concatenate,
    draw_background,
    draw_population,
    payer_id,
    transaction_id,
)

_LONGEST_REPEAT_MS = 60_000
_NEVER_MS = 2**62
_SHARE_LATE_ON_CARD = 0.5
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class DisorderCounts:
    """How many transactions arrive late, again, or at a time already taken; how many lines are broken."""

    late: int
    duplicates: int
    collisions: int
    malformed: int


def disorder(
    rng: np.random.Generator, settings: GeneratorSettings, events: Transactions, planted: Flags
) -> tuple[Transactions, DisorderCounts]:
    """Order transactions, sorted by time and numbered, by arrival, add repeats and twins, and count these.

    Planted ones arrive on time and once.
    """
    late_row, delay_ms = _draw_late(rng, settings, events, planted)
    taken = planted.copy()
    taken[late_row] = True
    on_time = rng.permutation(np.flatnonzero(~taken))
    repeats = round(settings.duplicate_rate * len(events))
    twins = round(settings.collision_rate * len(events))
    repeat_row, twin_row = on_time[:repeats], on_time[repeats : repeats + twins]

    arrival_ms = events.event_time_ms.copy()
    arrival_ms[late_row] += delay_ms
    again_ms = arrival_ms[repeat_row] + rng.integers(1, _LONGEST_REPEAT_MS, len(repeat_row))
    original = np.concatenate([np.arange(len(events)), twin_row, repeat_row])
    at_ms = np.concatenate([arrival_ms, arrival_ms[twin_row], again_ms])
    copies = np.repeat([0, 1, 2], [len(events), len(twin_row), len(repeat_row)])
    # Twins are other transactions with the same payer, beneficiary, card and time.
    twins_of = events.take(twin_row)
    cents = np.rint(twins_of.amount_cents * rng.uniform(0.5, 1.5, len(twins_of))).astype(np.int64)
    numbers = len(events) + np.arange(len(twins_of))
    others = replace(twins_of, number=numbers, amount_cents=np.maximum(cents, 1))
    rows = concatenate([events, others, events.take(repeat_row)])
    counts = DisorderCounts(len(late_row), len(repeat_row), len(twin_row), 0)
    return rows.take(np.lexsort((copies, original, at_ms))), counts


def _draw_late(
    rng: np.random.Generator, settings: GeneratorSettings, events: Transactions, planted: Flags
) -> tuple[Integers, Integers]:
    """Draw rows that arrive late, and their delays in ms, long enough for a later event to arrive first."""
    wanted = round(settings.late_rate * len(events))
    nobody = np.zeros(len(events), bool)
    longest_ms = settings.max_delay_ms
    on_card = ~planted & (_next_gap_ms(events, events.card, nobody) < longest_ms)
    in_stream = ~planted & (_next_gap_ms(events, np.zeros_like(events.card), nobody) < longest_ms)
    first = rng.permutation(np.flatnonzero(on_card))[: round(wanted * _SHARE_LATE_ON_CARD)]
    in_stream[first] = False
    second = rng.permutation(np.flatnonzero(in_stream))[: wanted - len(first)]

    late = nobody.copy()
    late[first] = late[second] = True
    card_gap_ms = _next_gap_ms(events, events.card, late)
    stream_gap_ms = _next_gap_ms(events, np.zeros_like(events.card), late)
    by_card = card_gap_ms < longest_ms
    by_card[second] = False
    gap_ms = np.where(by_card, card_gap_ms, stream_gap_ms)
    row = np.flatnonzero(late & (gap_ms < longest_ms))
    slack_ms = longest_ms - gap_ms[row]
    return row, gap_ms[row] + 1 + (rng.random(len(row)) * slack_ms).astype(np.int64)


def _next_gap_ms(events: Transactions, key: Integers, late: Flags) -> Integers:
    """Return the time from each event to the next later event of its key that arrives on time."""
    count = len(events)
    order = np.lexsort((events.event_time_ms, key))
    time_ms, sorted_key = events.event_time_ms[order], key[order]
    on_time = np.where(late[order], count, np.arange(count))
    following = np.append(np.minimum.accumulate(on_time[::-1])[::-1][1:], count)
    has_next = following < count
    position = np.where(has_next, following, 0)
    has_next &= (sorted_key[position] == sorted_key) & (time_ms[position] > time_ms)
    gap_ms = np.empty(count, np.int64)
    gap_ms[order] = np.where(has_next, time_ms[position] - time_ms, _NEVER_MS)
    return gap_ms


ROWS_AT_ONCE = 50_000
_QUOTED = (f'"{name}":{{}}' if name == "eventTime" else f'"{name}":"{{}}"' for name in FIELD_NAMES)
_JSON = "{{" + ",".join(_QUOTED) + "}}"
_CSV = ",".join("{}" for _ in FIELD_NAMES)
_Fields = tuple[str, int, str, str, str, str, str]


def _rows(transactions: Transactions) -> Iterator[_Fields]:
    for start in range(0, len(transactions), ROWS_AT_ONCE):
        part = transactions.take(slice(start, start + ROWS_AT_ONCE))
        yield from zip(
            map(transaction_id, part.number.tolist()),
            part.event_time_ms.tolist(),
            map(payer_id, part.payer.tolist()),
            map(beneficiary_id, part.beneficiary.tolist()),
            map(card_id, part.card.tolist()),
            [PAYMENT_TYPES[kind] for kind in part.payment_type.tolist()],
            map(amount_text, part.amount_cents.tolist()),
            strict=True,
        )


def json_lines(transactions: Transactions) -> Iterator[str]:
    """Write each transaction as JSON, without line ends; the amount is a string, so that no float touches it."""
    return (_JSON.format(*row) for row in _rows(transactions))


_AMOUNT = pa.decimal128(18, 2)
ARROW_SCHEMA = pa.schema(
    [(name, {"eventTime": pa.int64(), "paymentAmount": _AMOUNT}.get(name, pa.string())) for name in FIELD_NAMES]
)


def record_batch(transactions: Transactions) -> Any:
    """Convert all transactions to one Arrow record batch of `ARROW_SCHEMA`."""
    columns = list(zip(*_rows(transactions), strict=True)) or [()] * len(FIELD_NAMES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns[:-1], ARROW_SCHEMA, strict=False)]
    amounts = pa.array(transactions.amount_cents).cast(pa.decimal128(19, 0)).view(_AMOUNT)
    return pa.record_batch([*arrays, amounts], schema=ARROW_SCHEMA)


_FAULTS = ("cut off", "field missing", "third digit", "no number", "absurd time")
_FIELDS_THAT_GO_MISSING = ("transactionId", "eventTime", "payerId", "cardId", "paymentAmount")
_ABSURD_TIMES_MS = (99_999_999_999_999, -99_999_999_999_999, 9_223_372_036_854_775_807)


def draw_malformed(
    rng: np.random.Generator, arrivals: Transactions, count: int, first_number: int
) -> list[tuple[int, str]]:
    """Draw broken lines, in arrival order, numbered from `first_number`; each with the row that follows it.

    It resembles that row, under a separate id.
    """
    rows = np.sort(rng.integers(0, len(arrivals), count))
    lines = []
    for offset, (row, line) in enumerate(zip(rows.tolist(), json_lines(arrivals.take(rows)), strict=True)):
        fault = _FAULTS[int(rng.integers(len(_FAULTS)))]
        line = line.replace(transaction_id(int(arrivals.number[row])), transaction_id(first_number + offset))
        lines.append((row, _break(rng, line, fault)))
    return lines


def _break(rng: np.random.Generator, line: str, fault: str) -> str:
    if fault == "cut off":
        return line[: int(rng.integers(1, len(line) - 1))]
    fields = json.loads(line)
    if fault == "field missing":
        del fields[_FIELDS_THAT_GO_MISSING[int(rng.integers(len(_FIELDS_THAT_GO_MISSING)))]]
    elif fault == "third digit":
        fields["paymentAmount"] += str(rng.integers(1, 10))
    elif fault == "no number":
        fields["paymentAmount"] = ("", "n/a", "twelve", "1.2.3")[int(rng.integers(4))]
    else:
        fields["eventTime"] = _ABSURD_TIMES_MS[int(rng.integers(len(_ABSURD_TIMES_MS)))]
    return json.dumps(fields, separators=(",", ":"))


@dataclass(frozen=True)
class Stream:
    """A generated stream: transactions in arrival order with repeated lines, broken lines, and planted cases."""

    settings: GeneratorSettings
    transactions: Transactions
    malformed: list[tuple[int, str]]  # broken lines, each with the row of the transaction that follows it
    truth: tuple[PlantedCase, ...]
    counts: DisorderCounts

    @property
    def line_count(self) -> int:
        """Lines of the stream, broken ones included."""
        return len(self.transactions) + len(self.malformed)

    def json_lines(self) -> Iterator[str]:
        """Yield all lines in arrival order, broken ones included, without line ends."""
        done = 0
        lines = json_lines(self.transactions)
        for row, broken in self.malformed:
            yield from islice(lines, row - done)
            done = row
            yield broken
        yield from lines


def generate(settings: GeneratorSettings) -> Stream:
    """Draw a stream.

    Each step draws from its own random numbers, so that another rate of disorder leaves the transactions,
    their ids and the planted cases as they were.

    Complexity: O(n log n) in the number of transactions.
    """
    seeds = np.random.SeedSequence(settings.seed).spawn(5)
    people, everyday, planting, arriving, breaking = (np.random.default_rng(seed) for seed in seeds)
    population = draw_population(people, settings)
    background = draw_background(everyday, settings, population)
    drafts = draw_cases(planting, settings, population, background)
    # Planted events replace as many others, so that the stream has the length asked for; all are numbered by time.
    planted = [draft.events for draft in drafts]
    others = background.take(slice(sum(map(len, planted)), None))
    together = concatenate([others, *planted])
    order = np.argsort(together.event_time_ms, kind="stable")
    events = replace(together.take(order), number=np.arange(len(order)))
    case_of = np.repeat(np.arange(-1, len(drafts)), [len(others), *map(len, planted)])[order]  # -1 of others
    arrivals, counts = disorder(arriving, settings, events, case_of >= 0)
    broken = round(settings.malformed_rate * settings.transactions)
    return Stream(
        settings=settings,
        transactions=arrivals,
        malformed=draw_malformed(breaking, arrivals, broken, settings.transactions + counts.collisions),
        truth=tuple(
            draft.numbered(index % settings.fraud_cases + 1, events.number[case_of == index])
            for index, draft in enumerate(drafts)
        ),
        counts=replace(counts, malformed=broken),
    )


LINES_BETWEEN_REPORTS = 10_000
OnLines = Callable[[int], None]  # Called with the number of lines written so far


@dataclass(frozen=True)
class WrittenStream:
    """The result of `write`."""

    files: tuple[Path, ...]
    truth: Path
    line_count: int


def write(stream: Stream, out_path: Path, progress: OnLines | None = None, overwrite: bool = False) -> WrittenStream:
    """Write a stream and its truth, as `destination` says; `progress` is called with the lines written so far."""
    target = destination(out_path, bool(stream.malformed), overwrite)
    report = progress or (lambda _: None)
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        target.truth.unlink(missing_ok=True)
        files: tuple[Path, ...] = (target.path,)
        if target.form == "folder":
            files = _write_folder(stream, target, report)
        elif target.form == "parquet":
            _write_parquet(stream, target.path, report)
        elif target.form == "csv":
            lines = (_CSV.format(*row) for row in _rows(stream.transactions))
            _write_lines(target.path, chain([",".join(FIELD_NAMES)], _counted(lines, report)))
        else:
            _write_lines(target.path, _counted(stream.json_lines(), report))
        _write_lines(target.truth, (case.to_json() for case in stream.truth))
    except OSError as error:
        message = f"output {out_path}: cannot be written: {error.strerror or error}; choose another path"
        raise BucketsError(message) from error
    return WrittenStream(files, target.truth, stream.line_count)


def _write_folder(stream: Stream, target: Destination, report: OnLines) -> tuple[Path, ...]:
    target.path.mkdir(exist_ok=True)
    for entry in target.path.iterdir():
        if OWN_FILE.fullmatch(entry.name):
            entry.unlink()
    lines = _counted(stream.json_lines(), report)
    rows_per_file = stream.settings.rows_per_file
    count = -(-stream.line_count // rows_per_file)
    files = tuple(target.path / f"transactions-{number:05d}.jsonl" for number in range(count))
    first_seconds = int(time.time()) - len(files) + 1
    for number, path in enumerate(files):
        _write_lines(path, islice(lines, rows_per_file), first_seconds + number)
    return files


def _counted(lines: Iterator[str], report: OnLines) -> Iterator[str]:
    """Yield the same lines; report the number of lines so far now and then, and at the end."""
    count = 0
    for count, line in enumerate(lines, start=1):
        yield line
        if count % LINES_BETWEEN_REPORTS == 0:
            report(count)
    report(count)


def _write_lines(path: Path, lines: Iterable[str], modified_seconds: int | None = None) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    if modified_seconds is not None:
        os.utime(part, (modified_seconds, modified_seconds))
    part.replace(path)


def _write_parquet(stream: Stream, path: Path, report: OnLines) -> None:
    part = path.with_name(f".{path.name}.part")
    count = len(stream.transactions)
    with pq.ParquetWriter(part, ARROW_SCHEMA) as file:
        for start in range(0, count, ROWS_AT_ONCE):
            file.write_batch(record_batch(stream.transactions.take(slice(start, start + ROWS_AT_ONCE))))
            report(min(start + ROWS_AT_ONCE, count))
    part.replace(path)
