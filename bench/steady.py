"""Steady data: every key gets exactly one event in each `window / N`, at a random moment in it.

So a window always holds N events of each key, which makes N the only thing that changes between runs. One more key may
be busier than the others. Every 100,000th event is one of the key `planted` instead, with an amount that no other event
has: a rule on the maximum fires for these events alone.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

AMOUNTS = (100, 500_000)
PLANTED_AMOUNT = 1_000_000
PLANTED = slice(50_000, None, 100_000)
START_MS = 1_700_000_000_000
WINDOW_MS = {"1h": 3_600_000, "24h": 86_400_000, "30d": 2_592_000_000}


@dataclass(frozen=True)
class Steady:
    """One data set: `events_in_window` events of each of `keys` keys in any `window`, cut into files.

    Attributes:
        keys: how many keys, without the busy one.
        events_in_window: N.
        window: the window that holds N events; a name in `WINDOW_MS`.
        files: how many files.
        rows_per_file: rows of each.
        first_rows: rows of one more file before the others; 0 for none.
        busy_events_in_window: N of one key more, which is busier; 0 for none.
        groupings: how many columns of keys there are; those after the first have as many keys, at random.
    """

    keys: int
    events_in_window: int
    window: str = "1h"
    files: int = 12
    rows_per_file: int = 300_000
    first_rows: int = 0
    busy_events_in_window: int = 0
    groupings: int = 1

    @property
    def name(self) -> str:
        """Name of the data set's folder."""
        busy = f"-one-with-{self.busy_events_in_window}" if self.busy_events_in_window else ""
        first = f"-{self.first_rows}-first" if self.first_rows else ""
        cut = f"{self.files}x{self.rows_per_file}{first}" + (f"-{self.groupings}-keys" if self.groupings > 1 else "")
        return f"steady-{self.keys}-keys-{self.events_in_window}{busy}-in-{self.window}-{cut}"

    @property
    def events(self) -> int:
        """All rows."""
        return self.first_rows + self.files * self.rows_per_file


def _times(keys: int, step_ms: int, span_ms: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Times of keys with one event in each step, at least as far as the span: shape `(steps, keys)`."""
    steps = -(-span_ms // step_ms)
    offsets_ms = random.integers(0, step_ms, size=(steps, keys))
    return np.asarray(START_MS + offsets_ms + (np.arange(steps) * step_ms)[:, None])


def _events(steady: Steady, random: np.random.Generator) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Times and key numbers of all events, in order of time."""
    window_ms = WINDOW_MS[steady.window]
    in_window = steady.keys * steady.events_in_window + steady.busy_events_in_window
    longest_step_ms = window_ms // steady.events_in_window
    span_ms = -(-steady.events * window_ms // in_window) + longest_step_ms
    usual = _times(steady.keys, longest_step_ms, span_ms, random)
    times_ms, keys = [usual.ravel()], [np.tile(np.arange(steady.keys), len(usual))]
    if steady.busy_events_in_window:
        busy = _times(1, window_ms // steady.busy_events_in_window, span_ms, random).ravel()
        times_ms.append(busy)
        keys.append(np.full(len(busy), steady.keys))
    every_time_ms, every_key = np.concatenate(times_ms), np.concatenate(keys)
    order = np.argsort(every_time_ms, kind="stable")[: steady.events]
    return every_time_ms[order], every_key[order]


def key_column(number: int) -> str:
    """The name of a column of keys."""
    return f"key_{number}" if number else "key"


def write_steady(steady: Steady, folder: Path) -> Path:
    """Write a data set as Parquet files, unless it is there.

    Columns: `ts` (ms), `key` and others like it, `amount` (an integer), `event_id`, `off` (arrival order). Files are a
    second apart in their modification times, by which Spark takes them.
    """
    target = folder / steady.name
    if (target / "_SUCCESS").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    random = np.random.default_rng(1)
    times_ms, keys = _events(steady, random)
    amounts = random.integers(*AMOUNTS, steady.events)
    names = pa.array([*(f"c{key:06d}" for key in range(steady.keys + 1)), "planted"])
    others = {
        key_column(number): random.integers(0, steady.keys, steady.events) for number in range(1, steady.groupings)
    }
    keys[PLANTED], amounts[PLANTED] = steady.keys + 1, PLANTED_AMOUNT
    cuts = [0] * bool(steady.first_rows) + [
        steady.first_rows + file * steady.rows_per_file for file in range(steady.files)
    ]
    first_s = int(time.time()) - len(cuts)
    for file, (start, end) in enumerate(zip(cuts, [*cuts[1:], steady.events], strict=True)):
        columns = {
            "ts": pa.array(times_ms[start:end]),
            "key": names.take(pa.array(keys[start:end])),
            "amount": pa.array(amounts[start:end]),
            "event_id": pa.array([f"e{row}" for row in range(start, end)]),
            "off": pa.array(np.arange(start, end)),
        } | {name: names.take(pa.array(other[start:end])) for name, other in others.items()}
        path = target / f"{file:05d}.parquet"
        pq.write_table(pa.table(columns), path)
        os.utime(path, (first_s + file, first_s + file))
    (target / "_SUCCESS").touch()
    return target


def write_json(data: Path) -> Path:
    """Write a data set once more as lines of JSON, unless it is there; its amounts are numbers.

    Args:
        data: the folder of Parquet files; the other one is beside it.
    """
    target = data.with_name(f"{data.name}-json")
    if (target / "_SUCCESS").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in sorted(data.glob("*.parquet")):
        rows = zip(*(column.to_pylist() for column in pq.read_table(path).columns), strict=True)
        lines = (
            f'{{"event_id":"{event_id}","ts":{time_ms},"key":"{key}","amount":{amount},"off":{row}}}\n'
            for time_ms, key, amount, event_id, row in rows
        )
        written = target / f"{path.stem}.jsonl"
        with written.open("w", encoding="ascii") as file:
            file.writelines(lines)
        shutil.copystat(path, written)
    (target / "_SUCCESS").touch()
    return target
