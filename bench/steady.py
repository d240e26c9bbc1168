"""Steady data: every key gets exactly one event in each `window / N`, at a random place in it.

So a window of one hour always holds N events of each key, which makes N the only thing that changes between runs.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WINDOW_MS = 3_600_000
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Steady:
    """One data set: `events_in_window` events of each of `keys` keys in any hour, cut into files."""

    keys: int
    events_in_window: int
    files: int
    rows_per_file: int

    @property
    def name(self) -> str:
        """Name of the data set's folder."""
        return f"steady-{self.keys}-keys-{self.events_in_window}-in-window-{self.files}x{self.rows_per_file}"


def write_steady(steady: Steady, folder: Path) -> Path:
    """Write a data set as Parquet files, unless it is there.

    Columns: `ts` (ms), `key`, `amount` (integer cents), `event_id`, `off` (arrival order).
    """
    target = folder / steady.name
    if (target / "_SUCCESS").exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    step_ms = WINDOW_MS // steady.events_in_window
    total = steady.files * steady.rows_per_file
    rounds = -(-total // steady.keys)
    places = random.integers(0, step_ms, size=(rounds, steady.keys))
    times_ms = (START_MS + places + (np.arange(rounds) * step_ms)[:, None]).ravel()
    keys = np.tile(np.arange(steady.keys), rounds)
    order = np.argsort(times_ms, kind="stable")[:total]
    times_ms, keys = times_ms[order], keys[order]
    amounts = random.integers(100, 500_000, total)
    names = pa.array([f"c{key:06d}" for key in range(steady.keys)])
    for file in range(steady.files):
        rows = slice(file * steady.rows_per_file, (file + 1) * steady.rows_per_file)
        columns = {
            "ts": pa.array(times_ms[rows]),
            "key": names.take(pa.array(keys[rows])),
            "amount": pa.array(amounts[rows]),
            "event_id": pa.array([f"e{row}" for row in range(rows.start, rows.stop)]),
            "off": pa.array(np.arange(rows.start, rows.stop)),
        }
        pq.write_table(pa.table(columns), target / f"{file:05d}.parquet")
    (target / "_SUCCESS").touch()
    return target
