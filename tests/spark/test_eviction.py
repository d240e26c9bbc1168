"""The state of a job on Spark stays bounded: idle keys go, also when the job is killed in the middle."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from buckets.byte_strings import ByteStrings
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.engine.eviction.chunks import read_chunks
from buckets.engine.eviction.schedule import CLOCK, OVERVIEW
from buckets.engine.stages.in_memory import MemoryEntries
from buckets.engine.storage.shard_store import (
    GROUP_BYTES,
    HEADS,
    PAGES,
    SCHEDULE,
    Section,
    head_key,
    split_head_key,
    split_page_key,
)
from buckets.spark.state_reader import read_stored
from buckets.state.layer import Bounds, Layer
from buckets.state.live_log import PrivateCaches
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder, Row
from tests.spark.payments import RULES
from tests.spark.test_kill import committed_batches, freeze_when, is_half_written

pytestmark = pytest.mark.spark

FILES, PAYERS, BURST = 4, 100, 300
GAP_MS = 10_000
"""Between two files: many times the horizon of every group. With so many payers most votes of a shard are new."""
ENGINE = {"shards": 2, "allowed_lateness": "100ms"}


def events_of(file: int) -> list[Row]:
    """Payers of the file's own, the first with so many events that it has pages, and one that comes in every file.

    A batch visits as many keys as it has events: three of each payer are enough for those of two files before.
    """
    payers = [*(f"é{file}-{number}" for number in range(PAYERS)), "steady"] * 3 + [f"é{file}-0"] * BURST
    return [
        {
            "id": f"{file}-{number}",
            "t": file * GAP_MS - 5_000 + number,
            "payer": payer,
            "kind": "CARD",
            "amount": "1.00",
        }
        for number, payer in enumerate(payers)
    ]


def add_file(job: JobFolder, file: int) -> None:
    job.add_file(file, [json.dumps(event) for event in events_of(file)])


Entries = dict[tuple[int, bytes], bytes]
"""What lies in one of the maps, by shard and state key."""


def stored(spark, job: JobFolder, section: bytes) -> Entries:
    """The entries of one of the maps, from all that lies in the stores."""
    rows = read_stored(spark, job.checkpoint).collect()
    stores: dict[int, MemoryEntries] = defaultdict(MemoryEntries)
    for shard, key, value in rows:
        stores[shard].data[bytes(key)] = bytes(value)
    found: Entries = {}
    for shard, store in stores.items():
        entries = Section(Layer(store, PrivateCaches(), Bounds(0, 0, 1)), section)
        keys = list(entries.list_keys())
        found |= zip(((shard, key) for key in keys), entries.get(keys), strict=True)
    return found


def schedule_of(entries: Entries) -> tuple[dict[int, dict], Counter[tuple[int, bytes]]]:
    """The overview of each shard; who is in its schedule, and how often."""
    overviews = {shard: json.loads(value) for (shard, state_key), value in entries.items() if state_key == OVERVIEW}
    scheduled: Counter[tuple[int, bytes]] = Counter()
    for (shard, state_key), chunk in entries.items():
        if state_key not in (OVERVIEW, CLOCK):
            keys, _, _ = read_chunks(ByteStrings.of([chunk]), ByteStrings.of([state_key[:GROUP_BYTES]]))
            scheduled.update((shard, key) for key in keys.to_list())
    return overviews, scheduled


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory) -> JobFolder:
    """The job over all files, a file a batch; nobody may change it."""
    job = JobFolder(tmp_path_factory.mktemp("undisturbed"), engine=ENGINE)
    for file in range(FILES):
        add_file(job, file)
    job.run(spark)
    return job


def expected_state_keys(job: JobFolder) -> set[bytes]:
    """Where the heads of the keys lie that had an event in the last file, or are visited for the first time with it."""
    payers = {event["payer"] for file in (FILES - 2, FILES - 1) for event in events_of(file)}
    groups = RuleVersions(job.checkpoint).groups()
    assert len(groups) == len(RULES)
    return {head_key(group.group_id, key) for group in groups.values() for key in (payers if group.fields else {""})}


def test_idle_keys_their_pages_and_their_entries_in_the_schedule_vanish(spark, undisturbed):
    heads, pages = stored(spark, undisturbed, HEADS), stored(spark, undisturbed, PAGES)
    assert {state_key for _, state_key in heads} == expected_state_keys(undisturbed)
    owners = {split_page_key(state_key)[0] for _, state_key in pages}
    assert {split_head_key(state_key)[1] for state_key in owners} == {f"é{FILES - 2}-0", f"é{FILES - 1}-0", ""}
    overviews, scheduled = schedule_of(stored(spark, undisturbed, SCHEDULE))
    assert len(overviews) == ENGINE["shards"]
    assert scheduled == Counter(list(heads))


@pytest.mark.nightly
def test_killed_in_the_middle_and_restarted_the_state_is_that_of_an_undisturbed_run(
    spark, undisturbed: JobFolder, tmp_path: Path
):
    source = {"kind": "json", "path": str(undisturbed.source), "max_files_per_trigger": 1}
    job = JobFolder(tmp_path, source=source, engine=ENGINE)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        freeze_when(command, job, is_half_written)
        command.kill_all()
    assert committed_batches(job) < committed_batches(undisturbed)
    job.run(spark)
    assert committed_batches(job) == committed_batches(undisturbed)
    for name in (HEADS, PAGES):
        assert stored(spark, job, name) == stored(spark, undisturbed, name)
    assert schedule_of(stored(spark, job, SCHEDULE)) == schedule_of(stored(spark, undisturbed, SCHEDULE))
