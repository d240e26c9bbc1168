"""A job without Spark that leaves behind what a real one does: checkpoint records, cuts, and an archive."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from buckets.archive.archive import Archive
from buckets.archive.archiving import archived
from buckets.archive.recorded_batches import RecordedBatches
from buckets.checkpoint.batch_ends import source_end
from buckets.checkpoint.batch_records import BatchRecord, Intake
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.source_offsets import spark_folder
from buckets.config.engine import EngineSettings
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.change import RuleChange, changes_between
from buckets.rules.renaming import renamed_rules
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.examples import with_new_names
from tests.core.pipeline import Pipeline, Row, arrivals

NO_RULES = RuleSet(0, (), (), {})


class ArchivedJob:
    """Scores batches in memory, and records and archives them."""

    def __init__(self, folder: Path, schema, lists: Lists = NO_LISTS, **engine) -> None:
        self.settings = EngineSettings.model_validate(engine)
        self.pipeline = Pipeline(NO_RULES, schema, **engine)
        self.schema, self.lists = schema, lists
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.archive = Archive(folder / "archive")
        self.archive.prepare(schema)
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
        self.archive.prepare(self.schema)
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
        intake = Intake(source_end(self.checkpoint.path, number), pipeline.accounts[-1].span)
        version, lists = pipeline.rule_set.version, self.pinned
        self.checkpoint.batches.keep(number, BatchRecord(version, (), done=True, lists=lists, intake=intake))
        self.checkpoint.cuts.keep(number)
        if rows:
            self.archive.append(archived(arrivals(rows, self.schema), self.schema, number), self.archive.end())

    @property
    def recorded(self) -> RecordedBatches:
        """What a reader of the checkpoint finds."""
        return RecordedBatches(self.checkpoint.path)
