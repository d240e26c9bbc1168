"""A past as a job leaves it: checkpoint, archive and tables of results, made without Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.folders import spark_folder
from buckets.checkpoint.terms import Terms
from buckets.engine.dead_letters import dead_letter_table, one_dead_letter_per_event
from buckets.events.arrivals import DeadLetter
from buckets.events.schema import EventSchema
from buckets.history.archive import Archive
from buckets.history.arrived import archived
from buckets.history.explanation_maker import Explainer
from buckets.history.explanation_past import Past
from buckets.history.explanation_results import RecordedResults
from buckets.history.recorded import Recorded
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet
from tests.core.pipeline import Pipeline, Row, arrivals


class RecordedJob:
    """A job that keeps its past in a folder."""

    def __init__(self, folder: Path, rule_set: RuleSet, schema: EventSchema, **engine: Any) -> None:
        self.folder, self.schema = folder, schema
        self.pipeline = Pipeline(rule_set, schema, **engine)
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.archive = Archive(folder / "archive")
        self.archive.prepare(schema, next(iter(schema.attributes)))
        terms = Terms(event_schema=schema, engine=self.pipeline.scorer.engine, evaluations=True, output="delta")
        self.checkpoint.batches.terms_for(0, terms)
        self.batches = 0
        self.use(rule_set)

    def use(self, rule_set: RuleSet) -> None:
        """Other rules from the next batch on."""
        self.pipeline.rule_set = rule_set
        self.checkpoint.versions.keep(rule_set, first_batch=self.batches)

    def batch(self, rows: list[Row]) -> None:
        """Score a batch, and keep what it leaves."""
        self.pipeline.batch([rows])
        offsets = spark_folder(self.checkpoint.path) / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(self.batches)).write_text('v1\n{}\n{"logOffset":0}')
        self.checkpoint.cuts.keep(self.batches, self.pipeline.rule_set.version, {}, None)
        if rows:
            self.archive.append(archived(arrivals(rows, self.schema), self.schema, self.batches), self.archive.end())
        self.batches += 1

    def explainer(self, evaluations: bool = True, most: int | None = None) -> Explainer:
        """Write the tables of results, and explain what is asked."""
        results = self.folder / "results"
        for output, schema in columns.output_columns(self.schema.largest_scale).items():
            rows = self.pipeline.output(output)
            if output == columns.DEAD_LETTERS and rows:
                letters = (DeadLetter(**{name: row[name] for name in DeadLetter.__annotations__}) for row in rows)
                table = one_dead_letter_per_event(dead_letter_table(letters))
            else:
                table = pa.Table.from_pylist(rows, schema=schema)
            if len(table) and (evaluations or output != columns.EVALUATIONS):
                write_deltalake(results / output, table, mode="overwrite")
        path = self.checkpoint.path
        return Explainer(Past(self.archive, Recorded(path), RecordedResults(results), self.checkpoint.versions), most)
