"""Loads the state of a running job after its latest batch; Spark reads it in a child process.

The job's stores are read entry by entry into one arena. The clocks of shards are merged into those of one shard with
all keys, like in an import of state with fewer shards.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from buckets.byte_strings import ByteStrings
from buckets.checkpoint.driver_state import Checkpoint
from buckets.engine.eviction.schedule import CLOCK, OVERVIEW
from buckets.engine.stages.in_memory import DriverStore
from buckets.engine.storage.shard_store import (
    GROUP_BYTES,
    HEADS,
    LOG,
    PAGES,
    POLICIES,
    SCHEDULE,
    ArenaEntries,
    DriverStores,
    Section,
    ShardStore,
    column_of,
    strings_of,
)
from buckets.errors import BucketsError
from buckets.rules.group import Group
from buckets.serve.job_batches import JobBatch
from buckets.state.live_log import decode_segment
from buckets.state_transfer.export_manifest import Regrouping
from buckets.state_transfer.shard_times import Installer, ShardTimes, carried_times

_LONGEST_SAID = 300
_LOOK_EVERY_S = 0.05


def read_entries(checkpoint: Path, stopping: Event) -> tuple[int, pa.Table]:
    """Return a batch that has just ended and the contents of all stores after it, in the form for `one_store`.

    Raises:
        BucketsError: it cannot be read, or reading was stopped.
    """
    with tempfile.TemporaryDirectory(prefix="buckets-serve-") as folder:
        said, faults = Path(folder, "said"), Path(folder, "faults")
        command = [sys.executable, "-m", "buckets.spark.state_dump", str(checkpoint), f"{folder}/entries"]
        with (
            said.open("wb") as out,
            faults.open("wb") as err,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err) as child,
        ):
            while child.poll() is None:
                if stopping.wait(_LOOK_EVERY_S):
                    child.terminate()
        if child.returncode:
            lines = faults.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            message = f"the state of checkpoint {checkpoint} cannot be read: {lines[-1][:_LONGEST_SAID]}"
            raise BucketsError(message)
        # Arrow's other threads do not give memory back.
        entries = ds.dataset(f"{folder}/entries", format="parquet").to_table(use_threads=False)
        return int(said.read_text().split()[-1]), entries


def state_of(checkpoint: Path, batch: JobBatch, stored: pa.Table) -> tuple[ShardStore, DriverStores]:
    """Return the state of a job after a batch, with all keys in one store."""
    rules, terms = batch.scored_by.job_rules, batch.scored_by.terms
    groups = {group.state_id: group for group in rules.groups}
    store = one_store(stored, groups, terms.engine.allowed_lateness)
    return store, DriverStore(Checkpoint(checkpoint).driver).of_batch(batch.number + 1)


def one_store(stored: pa.Table, groups: Mapping[str, Group], lateness_ms: int) -> ShardStore:
    """Merge the stores of all shards, given as columns `shard`, `state_key` and `value`, into one.

    Keys of groups other than these, by the identity of their timelines, are dropped.
    """
    entries, pages, times = ArenaEntries(), ArenaEntries(), dict[int, dict[bytes, bytes]]()
    sections = {name: pc.starts_with(stored["state_key"], pattern=name) for name in (PAGES, SCHEDULE, LOG)}
    others = pc.invert(pc.or_(pc.or_(sections[PAGES], sections[SCHEDULE]), sections[LOG]))
    for to, mask in ((pages, sections[PAGES]), (entries, others)):
        of_section = stored.filter(mask)
        to.write(strings_of(of_section["state_key"]), strings_of(of_section["value"]))
    for shard, of_shard in _by_shard(stored.filter(sections[SCHEDULE])):
        _note_times(times.setdefault(shard, {}), of_shard["state_key"].to_pylist(), of_shard["value"].to_pylist())
    for shard, of_shard in _by_shard(stored.filter(sections[LOG])):
        for segment, data in sorted(zip(*(column.to_pylist() for column in of_shard.columns), strict=True)):
            if segment != LOG:
                keys, values = decode_segment(data)
                _take_in(entries, times.setdefault(shard, {}), keys, values)
    heads, schedule, policies = (Section(entries, name) for name in (HEADS, SCHEDULE, POLICIES))
    store = ShardStore(heads, Section(pages, PAGES), schedule, policies)
    _schedule(store, entries, times, Regrouping(groups, lateness_ms, len(times), 1))
    return store


def _by_shard(entries: pa.Table) -> Iterable[tuple[int, pa.Table]]:
    for shard in pc.unique(entries["shard"]).to_pylist():
        yield shard, entries.filter(pc.equal(entries["shard"], shard)).select(["state_key", "value"])


def _take_in(entries: ArenaEntries, times: dict[bytes, bytes], keys: ByteStrings, values: ByteStrings) -> None:
    """Add the entries of a log segment, newer than the existing ones; an empty value is a deletion."""
    of_schedule = pc.starts_with(column_of(keys), pattern=SCHEDULE).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(of_schedule)
    _note_times(times, keys.take(chosen).to_list(), values.take(chosen).to_list())
    there = values.lengths > 0
    kept, gone = np.flatnonzero(~of_schedule & there), np.flatnonzero(~of_schedule & ~there)
    entries.write(keys.take(kept), values.take(kept))
    gone_keys = keys.take(gone)
    known = np.flatnonzero(entries.read(gone_keys).lengths)
    if len(known):
        entries.remove(gone_keys.take(known))


def _note_times(times: dict[bytes, bytes], keys: Iterable[bytes], values: Iterable[bytes]) -> None:
    for key, value in zip(keys, values, strict=True):
        if (name := key[GROUP_BYTES:]) in (OVERVIEW, CLOCK):
            times[name] = value


def _schedule(
    store: ShardStore, entries: ArenaEntries, times: Mapping[int, Mapping[bytes, bytes]], carried: Regrouping
) -> None:
    """Schedule all keys for eviction, and write the merged clocks; drop keys without a group."""
    known = {shard: ShardTimes.read(of.get(OVERVIEW, b""), of.get(CLOCK, b"")) for shard, of in times.items()}
    installer, keys = Installer(store, carried), entries.keys()
    heads = np.flatnonzero(~pc.starts_with(column_of(keys), pattern=POLICIES).to_numpy(zero_copy_only=False))
    keys = keys.take(heads)
    prefixes = _prefixes(keys)
    for prefix in np.unique(prefixes).tolist():
        group_id, of_group = prefix.to_bytes(GROUP_BYTES, "big").hex(), keys.take(np.flatnonzero(prefixes == prefix))
        if group_id in carried.groups:
            installer.enter(group_id, of_group)
        else:
            store.heads.remove(of_group)
    voters = [
        (shard, group_id, voter, "")
        for shard, of_shard in known.items()
        for group_id, of_group in of_shard.voters.items()
        for voter, _ in of_group
    ]
    installer.end(carried_times(known, voters, carried)[0])


def _prefixes(keys: ByteStrings) -> npt.NDArray[np.uint64]:
    """Return the first `GROUP_BYTES` bytes of each key as a number, uint64 `(keys,)`."""
    places = keys.start[:-1, np.newaxis] + np.arange(GROUP_BYTES)
    numbers: npt.NDArray[np.uint64] = np.ascontiguousarray(keys.data[places]).view(">u8").ravel().astype(np.uint64)
    return numbers
