"""A job without Spark that leaves behind what a real one does: checkpoint records, cuts, and an archive."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from buckets.archive.archive import Archive
from buckets.archive.archive_writer import ArchiveWriter
from buckets.archive.arrived_rows import ArrivedInTask, ArrivedRows, archived_and_rounded, archived_rows
from buckets.archive.history import RecordedBatches
from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.source_offsets import spark_folder
from buckets.config.engine import EngineSettings
from buckets.config.settings import ArchiveSettings
from buckets.delta.upkeep import Upkeep
from buckets.events.arrivals import convert
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.change import RuleChange, changes_between
from buckets.rules.renaming import renamed_rules
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.examples import with_new_names
from tests.core.pipeline import Pipeline, Row, arrivals

NO_RULES = RuleSet(0, (), (), {})


def archive_writer(folder: Path, cluster_by: str | None = None, identity: str = "job") -> ArchiveWriter:
    """What a job appends to its archive with."""
    settings = ArchiveSettings(path=str(folder), cluster_by=cluster_by)
    return ArchiveWriter(folder, settings, identity, Upkeep([Archive(folder).table_path]))


def arrived(*pieces: pa.Table) -> list[ArrivedRows]:
    """What a task hands over that has read rows of the archive, in pieces."""
    task = ArrivedInTask()
    for piece in pieces:
        if len(piece):
            task.take(piece)
    handed_over = task.handed_over(Path("never"))
    return [] if handed_over is None else [handed_over]


def archived(rows: pa.RecordBatch, schema: EventSchema, batch_id: int) -> pa.Table:
    """Arrivals of a batch as rows of the archive, without their numbers."""
    return archived_and_rounded(rows, schema, batch_id)[0]


def arrived_events(rows: Sequence[Row], schema: EventSchema) -> list[ArrivedRows]:
    """What a task hands over that has read events."""
    came = arrivals(rows, schema)
    return arrived(archived_rows(came, convert(came, schema, frozenset()), schema))


class ArchivedJob:
    """Scores batches in memory, and records and archives them."""

    def __init__(self, folder: Path, schema, lists: Lists = NO_LISTS, **engine) -> None:
        self.settings = EngineSettings.model_validate(engine)
        self.pipeline = Pipeline(NO_RULES, schema, **engine)
        self.schema, self.lists = schema, lists
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.archive, self.writer = Archive(folder / "archive"), archive_writer(folder / "archive")
        self.pinned: dict[str, int] = {}
        self.terms = Terms(event_schema=schema, engine=self.settings, evaluations=True, output="delta")

    def change(self, asked: Sequence[RuleChange], arrived=()) -> None:
        """Change rules, state or all of them, from the next batch on."""
        before = self.pipeline.rule_set
        made = revise(before, asked, self.schema, arrived, self.settings.allowed_lateness)
        assert made.refused == []
        if made.rule_set.version != before.version:
            self.checkpoint.versions.keep(made.rule_set, made.made, self.pipeline.batches)
            self.pipeline.rule_set = made.rule_set

    def take(self, rules: Sequence[Rule], arrived=()) -> None:
        """Have other rules from the next batch on."""
        self.change(changes_between(self.pipeline.rule_set.rules, rules), arrived)

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with other names of fields, as with another event schema."""
        before = self.pipeline.rule_set
        self.schema = self.pipeline.schema = with_new_names(self.schema, dict(names))
        self.pipeline.scorer = replace(self.pipeline.scorer, schema=self.schema)
        self.terms = self.terms.model_copy(update={"event_schema": self.schema})
        made = renamed_rules(before, self.schema.new_names)
        if made is not before:
            self.pipeline.rule_set = replace(made, version=before.version + 1)
            self.checkpoint.versions.keep(self.pipeline.rule_set, (), self.pipeline.batches)

    def batch(self, rows: Sequence[Row]) -> None:
        """Score, record and archive a batch; its rows are in arrival order."""
        number, pipeline = self.pipeline.batches, self.pipeline
        pipeline.batch([rows])
        self.checkpoint.batches.terms_for(number, self.terms)
        offsets = spark_folder(self.checkpoint.path) / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(number)).write_text(f'v1\n{{}}\n{{"logOffset":{number}}}')
        version, lists = pipeline.rule_set.version, self.pinned
        self.checkpoint.batches.keep(number, BatchRecord(version, (), done=True, lists=lists))
        self.checkpoint.cuts.keep(number)
        self.writer.write(number, self.schema, pipeline.rule_set, arrived_events(rows, self.schema))

    @property
    def recorded(self) -> RecordedBatches:
        """What a reader of the checkpoint finds."""
        return RecordedBatches(self.checkpoint.path)
