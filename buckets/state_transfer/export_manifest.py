"""The manifest and the tables of an export of state, and the plan of an import.

EXPORT/keys      a Delta table: one row per key, with its head and what policies remember of it
EXPORT/pages     one row per page
EXPORT/shards    one row per shard: its times
EXPORT/records   one row per file that the driver and Spark have written beside the state
EXPORT/export.json  the manifest, which is written last
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pydantic import BaseModel, ConfigDict

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.identity import CheckpointIdentity, check_release
from buckets.checkpoint.source_offsets import SourceOffsets, records_folder, spark_folder, state_folder
from buckets.duration import format_duration
from buckets.engine.storage.key import shards_of
from buckets.errors import BucketsError, first_line
from buckets.events.schema import EventSchema
from buckets.files import write_whole
from buckets.rules.completeness import Stretches
from buckets.rules.flink_message import check_against_schema
from buckets.rules.group import Group
from buckets.rules.renaming import check_names, renamed_rules
from buckets.rules.rule_set import RuleSet, with_lateness
from buckets.validation import field_name

FORMAT = 1
FILE = "export.json"
KEYS, PAGES, SHARDS, RECORDS = "keys", "pages", "shards", "records"


class TableCheck(BaseModel):
    """A table's row count, and a checksum of its rows in any order, to verify that it is complete."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int
    checksum: int


class ExportManifest(BaseModel):
    """The contents of an export: a checkpoint, its job's record, and its state as of a batch, as tables by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    release: str
    made_ms: int
    checkpoint: str
    job: dict[str, Any]
    batch_id: int
    ruleset_version: int
    tables: dict[str, TableCheck]

    @property
    def identity(self) -> str:
        """The identity of the checkpoint."""
        return str(self.job["id"])

    def write(self, folder: Path) -> None:
        """Write the manifest, which completes the export."""
        write_whole(folder / FILE, self.model_dump_json(indent=1))

    @classmethod
    def read(cls, folder: Path) -> "ExportManifest":
        """Read the manifest of an export."""
        if not folder.is_dir():
            message = f"there is no folder {folder}; name one that `buckets state export` has written"
            raise BucketsError(message)
        if not (folder / FILE).exists():
            message = (
                f"{folder} is not a complete export: there is no {FILE} in it, which `buckets state export` writes "
                "last; export the state again, into a new folder"
            )
            raise BucketsError(message)
        try:
            written = json.loads((folder / FILE).read_bytes())
            if written["format"] != FORMAT:
                message = f"has format {written['format']}, and this release reads format {FORMAT}"
                raise BucketsError(message)
            manifest = cls.model_validate(written)
            check_release(manifest.job)
        except BucketsError as error:
            message = f"export {folder} {error.message}; run a release that is as new as the one that wrote it"
            raise BucketsError(message) from error
        except (ValueError, KeyError, TypeError) as error:
            message = f"export {folder} is damaged: {FILE} cannot be read ({first_line(error)}); export the state again"
            raise BucketsError(message) from None
        return manifest


@dataclass(frozen=True)
class Regrouping:
    """A job's groups by identity, and its number of shards now and before.

    State of other groups is not carried over, since no rule needs it.
    """

    groups: Mapping[str, Group]
    lateness_ms: int  # from now on
    shards_before: int
    shards: int

    @classmethod
    def of(cls, rule_set: RuleSet, lateness_ms: int, shards_before: int, shards: int) -> "Regrouping":
        """Return the groups of rules with the new lateness and number of shards."""
        groups = {group.state_id: group for group in (*rule_set.groups, *rule_set.alert_groups)}
        return cls(groups, lateness_ms, shards_before, shards)

    @property
    def keeps_shards(self) -> bool:
        """Whether each key stays in its shard."""
        return self.shards == self.shards_before

    def shards_of(self, group_id: str, keys: Sequence[str]) -> list[int]:
        """Return the new shard of each key of a group."""
        return [*map(int, shards_of(self.groups[group_id], pa.array(keys, pa.string()), self.shards))]

    def on_driver(self) -> "Regrouping":
        """Return the same groups with all keys in one shard, as on the driver."""
        return replace(self, shards_before=1, shards=1)


@dataclass(frozen=True)
class CarryPlan:
    """How an import changes an export."""

    manifest: ExportManifest  # the export's manifest
    basis: CheckpointIdentity  # what the new checkpoint is made from
    before: RuleSet  # the rules in force so far
    rule_set: RuleSet  # the rules in force from now on; the same version if nothing changes
    carried: Regrouping  # the new groups and shards
    differences: tuple[str, ...]  # the changes, one line each


def plan_import(
    manifest: ExportManifest, rule_set: RuleSet, arrived: Stretches, basis: CheckpointIdentity
) -> CarryPlan:
    """Plan an import."""
    written = manifest.job
    conflict = basis.conflict(written, is_carried=True)
    if conflict is not None:
        message = f"the state of {manifest.checkpoint} {conflict}; this cannot be carried over"
        raise BucketsError(message)
    check_names(rule_set, basis.schema)
    before_ms, now_ms = written["allowed_lateness_ms"], basis.engine.allowed_lateness
    next_version = rule_set.version + 1
    now = with_lateness(renamed_rules(rule_set, basis.schema.new_names), next_version, arrived, before_ms, now_ms)
    if now.groups == rule_set.groups and now.alert_groups == rule_set.alert_groups:
        now = rule_set
    for rule in now.rules:
        fault = check_against_schema(rule, basis.schema) if rule.state != "DELETE" else None
        if fault is not None:
            message = (
                f"rule {rule.rule_id!r} is in force, and does not fit the event schema ({field_name(fault[0])}: "
                f"{fault[1]}); declare the field, or delete the rule before you export"
            )
            raise BucketsError(message)
    carried = Regrouping.of(now, now_ms, written["shards"], basis.engine.shards)
    differences = tuple(_differences(manifest, basis, rule_set, now))
    return CarryPlan(manifest, basis, rule_set, now, carried, differences)


def _differences(manifest: ExportManifest, basis: CheckpointIdentity, before: RuleSet, now: RuleSet) -> Iterator[str]:
    written = manifest.job
    if written["shards"] != basis.engine.shards:
        yield (
            f"engine.shards: {written['shards']} until now, {basis.engine.shards} from now on; all shards know the "
            "latest of what any of them has evicted of a group, so that more results of keys that come back say "
            "`warm: false`"
        )
    was_ms, now_ms = written["allowed_lateness_ms"], basis.engine.allowed_lateness
    if was_ms != now_ms:
        line = f"engine.allowed_lateness: {format_duration(was_ms)} until now, {format_duration(now_ms)} from now on"
        what = "; windows that reach back further than what has been kept say `warm: false`"
        yield line + (what if now_ms > was_ms else "; what is older than the shorter horizon is removed")
    schema = EventSchema.model_validate(written["event_schema"])
    yield from basis.schema_changes(schema)
    for field in schema.renamed(basis.schema.new_names).roles:
        if field not in basis.schema.roles:
            yield f"the event schema does not declare {field} any more; no rule in force names it"
    yield from basis.settings_changed(written)
    if now.version != before.version:
        yield f"the rule set gets version {now.version}; rules keep their versions"


_LEFT_OUT = ("in_use", "live.json", "job.json")  # Records that belong to one checkpoint alone


def last_batch(checkpoint: Path) -> int:
    """Return the last ended batch."""
    ended = SourceOffsets(checkpoint).ended
    if ended is None:
        message = f"checkpoint {checkpoint} holds no state yet: no batch has ended; there is nothing to carry over"
        raise BucketsError(message)
    begun = BatchRecords(checkpoint).newest()
    if begun is not None and begun > ended:
        message = (
            f"checkpoint {checkpoint}: batch {begun} has begun and not ended, and may be half written; start the job "
            "once more with its old settings until it has ended, stop it, and export then"
        )
        raise BucketsError(message)
    return ended


def carried_files(checkpoint: Path, batch_id: int) -> Iterator[Path]:
    """Yield the files that are copied unchanged, relative to the checkpoint."""
    spark = spark_folder(checkpoint)
    files = [file for file in sorted(records_folder(checkpoint).rglob("*")) if file.name not in _LEFT_OUT]
    files += sorted((spark / "sources").rglob("*"))
    # Spark also needs the batch before the last one.
    files += [file for number in (batch_id - 1, batch_id) if (file := spark / "offsets" / str(number)).exists()]
    files.append(spark / "commits" / str(batch_id))
    for file in files:
        if file.is_file() and not file.name.startswith("."):
            yield file.relative_to(checkpoint)


def number_state(checkpoint: Path, batch_id: int) -> None:
    """Rename state as of batch 0 to state as of another batch.

    It is a snapshot of each partition's store; only its name contains the number of the next batch.
    """
    for partition in (state_folder(checkpoint) / "0").glob("[0-9]*/*"):
        snapshot = partition / "1.zip"
        if not snapshot.exists():
            message = f"Spark has written no snapshot of the state in {partition}, as this release expects of it"
            raise BucketsError(message)
        # Under another name, Hadoop's checksum file no longer matches.
        for other in partition.glob(".*.crc"):
            other.unlink()
        snapshot.rename(partition / f"{batch_id + 1}.zip")


CHECKED = {
    KEYS: ("shard", "state_key", "head", "policies"),
    PAGES: ("shard", "state_key", "page"),
    SHARDS: ("shard", "overview", "voters"),
    RECORDS: ("path", "content"),
}
"""For each table, the columns that its checksum covers."""


def rows_of(folder: Path, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table, with the columns of `CHECKED`; BucketsError if it cannot be read."""
    with _reading(folder, name):
        yield from DeltaTable(folder / name).to_pyarrow_dataset().to_batches(columns=list(CHECKED[name]))


def check_table(folder: Path, name: str) -> TableCheck:
    """Count the rows of a table, and compute a checksum of them in any order. Cost: about 3 us per row.

    Raises BucketsError if it cannot be read.
    """
    rows = checksum = 0
    for batch in rows_of(folder, name):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            fields = [value if isinstance(value, bytes) else str(value).encode() for value in row]
            text = b"".join([*(len(field).to_bytes(8) for field in fields), *fields])
            checksum = (checksum + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())) % 2**64
        rows += batch.num_rows
    return TableCheck(rows=rows, checksum=checksum)


def check_contents(folder: Path, manifest: ExportManifest) -> None:
    """Check that each table has the rows that were written; raises BucketsError if not, or if one is unreadable."""
    for name in CHECKED:
        _check(folder, name, check_table(folder, name) == manifest.tables.get(name))


def check_row_counts(folder: Path, manifest: ExportManifest) -> None:
    """Check that each table opens and has its row count, without reading rows; raises BucketsError otherwise."""
    for name in CHECKED:
        with _reading(folder, name):
            rows = DeltaTable(folder / name).to_pyarrow_dataset().count_rows()
        _check(folder, name, name in manifest.tables and rows == manifest.tables[name].rows)


def _check(folder: Path, name: str, is_whole: bool, what: str = "does not hold what was written") -> None:
    if not is_whole:
        message = f"export {folder} is damaged: table {name} {what}; export the state again"
        raise BucketsError(message)


@contextmanager
def _reading(folder: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        _check(folder, name, False, f"cannot be read ({first_line(error)})")
