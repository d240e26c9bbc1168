"""`buckets state export` and `import`: a checkpoint's state as a folder of Delta tables, and a checkpoint made from it.

An import makes a checkpoint for other settings:

1. It copies the records unchanged, and adds a new version of the rules if their groups change.
2. Tasks that do nothing else write the state with Spark's own state store.
3. The stores' version becomes the number of the export's last batch, whose offsets are carried over. So batch numbers
   continue, and Delta tables accept the next batch as the successor of all that they contain.
4. The record of the job is written last; until then the folder is no checkpoint.
"""

import json
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import buckets
from buckets.archive.archive import table_of
from buckets.archive.archive_writer import ARCHIVE
from buckets.byte_strings import ByteStrings
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.job_record import Import, job_file
from buckets.checkpoint.lock import Lock, check_free
from buckets.checkpoint.record_files import OwnedFolder
from buckets.checkpoint.source_offsets import lock_file, spark_folder, state_folder
from buckets.clock import epoch_ms
from buckets.config.job import Job
from buckets.delta.whole_table import last_number
from buckets.engine.eviction.schedule import CLOCK, OVERVIEW
from buckets.engine.eviction.shard_clock import ShardClock
from buckets.engine.storage import shard_store
from buckets.engine.storage.key import key_writer
from buckets.engine.storage.shard_store import PAGE_BYTES, split_head_key
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.files import remove_tree, write_whole
from buckets.outputs.columns import BATCHES
from buckets.rules.group import Group
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.scored_batch import run_batch
from buckets.spark.session import FILE_MANAGER, SETTINGS, settings_while, shuffle_partitions
from buckets.spark.state_reader import read_entries
from buckets.spark.windows import MESSAGES, PRODUCED, install
from buckets.state_transfer.export_manifest import (
    CHECKED,
    KEYS,
    PAGES,
    RECORDS,
    SHARDS,
    CarryPlan,
    ExportManifest,
    Regrouping,
    carried_files,
    check_contents,
    check_row_counts,
    check_table,
    last_batch,
    number_state,
    plan_import,
    rows_of,
)
from buckets.state_transfer.shard_times import (
    Resolved,
    ShardTimes,
    carried_driver,
    carried_state_keys,
    carried_times,
    resolve,
)
from buckets.stores.location import location
from buckets.stores.store_path import StorePath
from buckets.timeline.inspection import extents_of, summarise_heads

_TIME = pa.timestamp("us", "UTC")
KEY_COLUMNS = pa.schema(
    {
        "shard": pa.int32(),
        "group": pa.string(),
        "key": pa.string(),
        "clock": _TIME,
        "events": pa.int64(),
        "first_event": _TIME,
        "last_event": _TIME,
        "cells": pa.int64(),
        "pages": pa.int64(),
        "codec": pa.int32(),
        "state_key": pa.binary(),
        "head": pa.binary(),
        "policies": pa.binary(),
    }
)
"""One row per key. Reading needs only `shard`, `state_key`, `head` and `policies`; the other columns are for people."""
SHARD_COLUMNS = pa.schema({"shard": pa.int32(), "clock": _TIME, "overview": pa.binary(), "voters": pa.binary()})
RECORD_COLUMNS = pa.schema({"path": pa.string(), "content": pa.binary()})


def export_state(spark: SparkSession, checkpoint: Path, folder: Path, say: Callable[[str], None]) -> ExportManifest:
    """Write the state of a checkpoint as of its last batch."""
    known = Checkpoint(checkpoint)
    job = known.job.written()
    if folder.exists() and any(folder.iterdir()):
        message = f"--to {folder} is there already, and an export is written into a new folder; name another one"
        raise BucketsError(message)
    with Lock(checkpoint):
        batch_id = last_batch(checkpoint)
        say(f"reading the state after batch {batch_id}")
        rule_set = known.versions.latest_rule_set()
        assert rule_set is not None
        if rule_set.fills:
            message = (
                f"checkpoint {checkpoint} is filling in the history of rules, which is not exported half done; start "
                "the job until `buckets rules list` says that it is done, or delete these rules"
            )
            raise BucketsError(message)
        groups = known.versions.timelines()
        pages = read_entries(spark, checkpoint, shard_store.PAGES).withColumnRenamed("value", "page")
        keys = _keys(spark, checkpoint, groups, known.job.event_schema())
        for name, frame in ((KEYS, keys), (PAGES, pages)):
            frame.write.format("delta").option("compression", "zstd").save(str(folder / name))
        write_deltalake(folder / SHARDS, _shards(spark, checkpoint))
        write_deltalake(folder / RECORDS, _records(checkpoint, batch_id))
        say("computing checksums")
        tables = {name: check_table(folder, name) for name in CHECKED}
    manifest = ExportManifest(
        release=buckets.__version__,
        made_ms=epoch_ms(),
        checkpoint=str(checkpoint),
        job=job,
        batch_id=batch_id,
        ruleset_version=rule_set.version,
        tables=tables,
    )
    manifest.write(folder)
    return manifest


def _keys(spark: SparkSession, checkpoint: Path, groups: Mapping[str, Group], schema: EventSchema) -> DataFrame:
    heads = read_entries(spark, checkpoint, shard_store.HEADS).withColumnRenamed("value", "head")
    policies = read_entries(spark, checkpoint, shard_store.POLICIES).withColumnRenamed("value", "policies")
    both = heads.join(policies, ["shard", "state_key"], "full_outer").select("shard", "state_key", "head", "policies")

    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield described_keys(batch, groups, schema)

    return both.mapInArrow(describe, from_arrow_schema(KEY_COLUMNS))


def described_keys(batch: pa.RecordBatch, groups: Mapping[str, Group], schema: EventSchema) -> pa.RecordBatch:
    """Return keys as rows of the export, given `shard`, `state_key`, `head` and `policies`."""
    heads = [head or b"" for head in batch["head"].to_pylist()]
    summary, extents = summarise_heads(ByteStrings.of(heads)), extents_of(ByteStrings.of(heads))
    names = [split_head_key(state_key) for state_key in batch["state_key"].to_pylist()]
    has_events, writers = extents.events > 0, {name: key_writer(group, schema) for name, group in groups.items()}
    columns = {
        "shard": batch["shard"],
        "group": [groups[group_id].name if group_id in groups else group_id for group_id, _ in names],
        "key": [writers[group_id](key) if group_id in writers else key for group_id, key in names],
        "clock": _times(summary.clocks_ms, [bool(head) for head in heads]),
        "events": extents.events,
        "first_event": _times(extents.first_ms, has_events),
        "last_event": _times(extents.last_ms, has_events),
        "cells": summary.cells,
        "pages": summary.pages,
        "codec": [head[0] if head else None for head in heads],
        "state_key": batch["state_key"],
        "head": heads,
        "policies": [state or b"" for state in batch["policies"].to_pylist()],
    }
    return pa.RecordBatch.from_pydict(columns, schema=KEY_COLUMNS)


def _times(times_ms: Iterable[int], known: Iterable[bool]) -> list[int | None]:
    """Return times in us; None for those that are unknown or outside the range of a table."""
    return [
        int(time_ms) * 1000 if is_known and abs(int(time_ms)) < 2**53 else None
        for time_ms, is_known in zip(times_ms, known, strict=True)
    ]


def _shards(spark: SparkSession, checkpoint: Path) -> pa.Table:
    wanted = [F.lit(bytearray(name)) for name in (OVERVIEW, CLOCK)]
    entries = read_entries(spark, checkpoint, shard_store.SCHEDULE).where(F.col("state_key").isin(wanted)).collect()
    by_shard: dict[int, dict[bytes, bytes]] = {}
    for row in entries:
        by_shard.setdefault(row.shard, {})[bytes(row.state_key)] = bytes(row.value)
    rows = []
    for shard, of_shard in sorted(by_shard.items()):
        voters = of_shard.get(CLOCK, b"")
        clock_ms = ShardClock.from_bytes(voters).time_ms
        (clock,) = _times([clock_ms or 0], [clock_ms is not None])
        rows.append({"shard": shard, "clock": clock, "overview": of_shard.get(OVERVIEW, b""), "voters": voters})
    return pa.Table.from_pylist(rows, schema=SHARD_COLUMNS)


def _records(checkpoint: Path, batch_id: int) -> pa.Table:
    files = [*carried_files(checkpoint, batch_id)]
    content = [(checkpoint / file).read_bytes() for file in files]
    return pa.table([pa.array(map(str, files), pa.string()), pa.array(content, pa.binary())], schema=RECORD_COLUMNS)


RESOLVED = pa.schema([("shard", pa.int32()), ("group_id", pa.string()), ("voter", pa.int64()), ("key", pa.string())])
"""The columns of voters with their keys."""


def plan_of(folder: Path, job: Job) -> CarryPlan:
    """Return what an import would do."""
    manifest = ExportManifest.read(folder)
    check_row_counts(folder, manifest)
    with tempfile.TemporaryDirectory() as work:
        _write_records(folder, Path(work))
        known = Checkpoint(Path(work))
        rule_set = known.versions.rule_set(manifest.ruleset_version)
        return plan_import(manifest, rule_set, known.batches.arrived(), CheckpointIdentity.of(job))


def import_state(spark: SparkSession, folder: Path, job: Job, plan: CarryPlan, say: Callable[[str], None]) -> None:
    """Create the checkpoint of a configuration, and claim its output folder."""
    life, before = uuid.uuid4().hex, location(plan.manifest.checkpoint)
    check_target(job, plan.manifest)
    if before.exists():
        check_free(before)
    say("checking the export")
    check_contents(folder, plan.manifest)
    with Lock(job.checkpoint):
        _check_new(job.checkpoint)
        try:
            if isinstance(job.checkpoint, StorePath):
                _import_into_store(spark, folder, job.checkpoint, plan, life, say)
            else:
                _import_into(spark, folder, job.checkpoint, plan, life, say)
        except BaseException:
            remove_tree(job.checkpoint)
            raise
    for setting, written, _, _ in _written_by(job):
        OwnedFolder(written, setting, life).hand_over(plan.manifest.identity)


def _import_into(
    spark: SparkSession, folder: Path, checkpoint: Path, plan: CarryPlan, life: str, say: Callable[[str], None]
) -> None:
    with tempfile.TemporaryDirectory(dir=checkpoint) as work:
        known = Checkpoint(checkpoint)
        known.imports.begin()
        _write_records(folder, checkpoint)
        _carry_records(checkpoint, plan)
        say("writing the state")
        messages = Path(work) / "messages"
        partitions = shuffle_partitions(spark)
        _messages(spark, folder, plan.carried, messages)
        _install(spark, messages, plan.carried, partitions, state_folder(checkpoint))
        number_state(checkpoint, plan.manifest.batch_id)
        write_whole(spark_folder(checkpoint) / "metadata", json.dumps({"id": str(uuid.uuid4())}))  # of Spark's query
        known.job.begin_imported(plan.basis, plan.manifest.identity, life, partitions)


def _import_into_store(
    spark: SparkSession, folder: Path, checkpoint: StorePath, plan: CarryPlan, life: str, say: Callable[[str], None]
) -> None:
    """Build the checkpoint on the local disk and copy it into the store; the file that makes it complete goes last."""
    Checkpoint(checkpoint).imports.begin()
    spark.conf.set(FILE_MANAGER, SETTINGS[FILE_MANAGER])
    with tempfile.TemporaryDirectory() as work:
        made = Path(work) / "checkpoint"
        made.mkdir()
        _import_into(spark, folder, made, plan, life, say)
        say("putting it into the store")
        files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
        for file in sorted(files, key=lambda file: file == job_file(made).relative_to(made)):
            if file.suffix == ".crc":  # of Hadoop, for a disk
                continue
            write_whole(checkpoint / file, (made / file).read_bytes())


def _check_new(checkpoint: Path) -> None:
    lock = lock_file(checkpoint)
    if checkpoint.exists() and any(path not in (lock, lock.parent) for path in checkpoint.rglob("*")):
        message = (
            f"checkpoint {checkpoint} is there already, and state is imported into a new one; name another folder "
            "as `checkpoint` of the configuration"
        )
        raise BucketsError(message)


def check_target(job: Job, manifest: ExportManifest) -> None:
    """Check that a checkpoint can be created, and that its output and archive are not ahead of the export."""
    check_free(job.checkpoint)
    Checkpoint(job.checkpoint).job.check_import_ended()
    _check_new(job.checkpoint)
    for setting, folder, table, name in _written_by(job):
        if not (folder.exists() and any(folder.iterdir())):
            continue
        last = last_number(table, f"{manifest.identity}-{name}") if table.exists() else None
        if OwnedFolder(folder, setting).identity() != manifest.identity:
            message = (
                f"{setting} {folder} holds tables of another checkpoint than the one that was exported; name that of "
                "the exported one, or a new folder"
            )
            raise BucketsError(message)
        if last is not None and last > manifest.batch_id:
            message = (
                f"{setting} {folder} holds batches up to {last}, and the export ends with batch {manifest.batch_id}; "
                "export the checkpoint that wrote them, or name a new folder"
            )
            raise BucketsError(message)


def _written_by(job: Job) -> Iterator[tuple[str, Path, Path, str]]:
    """Yield setting and path of each folder a job writes to, a table that gets every batch, and its application."""
    output, archive = job.settings.output.folder, job.settings.archive
    if output is not None:
        yield "output.path", output, output / BATCHES, BATCHES
    if archive is not None:
        folder = location(archive.path)
        yield "archive.path", folder, table_of(folder), ARCHIVE


def _write_records(folder: Path, checkpoint: Path) -> None:
    for batch in rows_of(folder, RECORDS):
        for path, content in zip(batch["path"].to_pylist(), batch["content"].to_pylist(), strict=True):
            write_whole(checkpoint / path, content)


def _carry_records(checkpoint: Path, plan: CarryPlan) -> None:
    """Write the records that change: the rules, the driver's state, and the note of the import."""
    known, batch_id, engine = Checkpoint(checkpoint), plan.manifest.batch_id, plan.basis.engine
    made = Import(batch_id, epoch_ms(), plan.manifest.checkpoint, engine.shards, engine.allowed_lateness)
    known.imports.keep(made)
    if plan.rule_set.version != plan.before.version:
        latest = known.versions.history()[-1]
        position = None if latest.origin is None else known.versions.position(latest.origin)
        gone = known.versions.gone_rules()
        known.versions.keep(plan.rule_set, (), batch_id + 1, position, latest.origin, gone)
    entries = known.driver.read(batch_id)
    if entries:
        carried = carried_driver(entries, plan.carried)
        known.driver.begin(batch_id, carried)
        record = known.batches.record(batch_id)
        if record is not None:
            known.batches.keep(batch_id, msgspec.structs.replace(record, driver=batch_id))


def _messages(spark: SparkSession, folder: Path, carried: Regrouping, to: Path) -> None:
    """Write the rows to put into the state as files of `MESSAGES`."""
    keys = _rows(spark, folder / KEYS, "shard int, state_key binary, head binary, policies binary")
    pages = _rows(spark, folder / PAGES, "shard int, state_key binary, page binary")
    for rows, carry in ((keys, _carried_keys), (pages, _carried_pages)):
        made = rows.mapInArrow(partial(carry, carried), from_arrow_schema(MESSAGES))
        made.write.mode("append").option("compression", "zstd").parquet(str(to))
    shards = DeltaTable(folder / SHARDS).to_pyarrow_table().to_pylist()
    times = {row["shard"]: ShardTimes.read(row["overview"], row["voters"]) for row in shards}
    now = carried_times(times, _resolved(keys, times), carried)
    blank = dict.fromkeys(MESSAGES.names)
    written = [
        blank | {"shard": shard, "overview": of_shard.overview(), "voters": of_shard.clock().to_bytes()}
        for shard, of_shard in now.items()
    ]
    pq.write_table(pa.Table.from_pylist(written, schema=MESSAGES), to / "times.parquet")


def _rows(spark: SparkSession, table: Path, columns: str) -> DataFrame:
    """Read columns of a table from its files: as a Delta table, Spark would first run jobs over its log."""
    files = DeltaTable(str(table)).file_uris()
    return spark.read.schema(columns).parquet(*files) if files else spark.createDataFrame([], columns)


def _resolved(keys: DataFrame, times: dict[int, ShardTimes]) -> list[Resolved]:

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            state_keys, shards = batch["state_key"], batch["shard"]
            of_shards = {shard: state_keys.filter(pc.equal(shards, shard)) for shard in pc.unique(shards).to_pylist()}
            voters = [voter for shard, own in of_shards.items() for voter in resolve(shard, own.to_pylist(), times)]
            rows = [dict(zip(RESOLVED.names, voter, strict=True)) for voter in voters]
            yield pa.RecordBatch.from_pylist(rows, schema=RESOLVED)

    rows = keys.select("shard", "state_key").mapInArrow(find, from_arrow_schema(RESOLVED)).collect()
    return [(row.shard, row.group_id, row.voter, row.key) for row in rows]


def _carried_keys(carried: Regrouping, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        now = carried_state_keys(batch["state_key"].to_pylist(), carried)
        yield _message_batch(now, batch, ["head", "policies"])


def _carried_pages(carried: Regrouping, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        state_keys = batch["state_key"].to_pylist()
        heads = carried_state_keys([state_key[:-PAGE_BYTES] for state_key in state_keys], carried)
        now = [
            None if head is None else (head[0], head[1] + state_key[-PAGE_BYTES:])
            for head, state_key in zip(heads, state_keys, strict=True)
        ]
        yield _message_batch(now, batch, ["page"])


def _message_batch(now: list[tuple[int, bytes] | None], batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Return messages for the new shards and keys of entries; entries without a new shard are dropped."""
    kept = pa.array([index for index, entry in enumerate(now) if entry is not None], pa.int64())
    entries = [entry for entry in now if entry is not None]
    columns = {
        "shard": pa.array([shard for shard, _ in entries], pa.int32()),
        "state_key": pa.array([state_key for _, state_key in entries], pa.binary()),
    } | {name: batch[name].take(kept) for name in names}
    arrays = [columns.get(name, pa.nulls(len(entries), pa.binary())) for name in MESSAGES.names]
    return pa.RecordBatch.from_arrays(arrays, MESSAGES.names)


def _install(spark: SparkSession, messages: Path, carried: Regrouping, partitions: int, state: Path) -> None:
    """Write the state as of batch 0, one snapshot per partition's store, from files of `MESSAGES`."""
    rows = spark.read.schema(from_arrow_schema(MESSAGES)).parquet(str(messages))
    by_shard = rows.repartitionById(partitions, "shard")
    installed = by_shard.mapInArrow(partial(install, carried), from_arrow_schema(PRODUCED))
    with settings_while(spark, {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}):
        run_batch(installed, str(state), 0)
