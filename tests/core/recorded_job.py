"""A job without Spark that also leaves the tables of its outputs behind, as a job from files does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from buckets.archive.history import History
from buckets.checkpoint.list_versions import PinnedLists
from buckets.config.job import Job
from buckets.config.settings import JobSettings
from buckets.events.schema import EventSchema
from buckets.history.replay.replay import OutputTables
from buckets.lists.base import Entry
from buckets.lists.index import ListIndex
from buckets.lists.keys import TEXT_KEYS, KeyForm
from buckets.outputs.columns import replayed_outputs
from buckets.rules.completeness import Stretches, joined
from buckets.rules.rule import Rule
from tests.core.archived_job import ArchivedJob
from tests.core.pipeline import Row

OUTPUTS = replayed_outputs(evaluations=True)
_TIMES = ("event_time", "window_start", "window_end")


class RecordedJob(ArchivedJob):
    """Batches one after the other; `history` writes what has come out, and opens it."""

    def __init__(self, folder: Path, schema: EventSchema, **engine: Any) -> None:
        super().__init__(folder, schema, **engine)
        self.folder = folder
        self.rows: dict[str, list[Row]] = {output: [] for output in OUTPUTS}

    @property
    def arrived(self) -> Stretches:
        """The event times that have arrived."""
        return joined(stretch for account in self.pipeline.accounts for stretch in account.arrived)

    def use(self, rules: Sequence[Rule]) -> None:
        """Have other rules from the next batch on."""
        self.take(rules, self.arrived)

    def use_list(self, name: str, keys: Mapping[str, Entry], form: KeyForm = TEXT_KEYS) -> None:
        """Have another version of a list from the next batch on."""
        version, _ = self.checkpoint.lists.keep(name, ListIndex.of(keys, form), None, "a test", None, len(keys))
        self.pinned = self.pinned | {name: version.number}
        lists = PinnedLists(self.checkpoint.lists, self.pinned)
        self.pipeline.scorer = replace(self.pipeline.scorer, lists=lists)

    def batch(self, rows: Sequence[Row]) -> None:
        """Score, record and archive a batch, whatever the order of its rows."""
        number, before = self.pipeline.batches, {output: len(self.pipeline.found.get(output, [])) for output in OUTPUTS}
        super().batch(
            sorted(rows, key=lambda row: (row.get("source_order", 0), row.get("source", ""), row["position"]))
        )
        for output in OUTPUTS:
            found = self.pipeline.found.get(output, [])[before[output] :]
            self.rows[output] += [_stored(row) | {"batch_id": number} for row in found]

    def history(self) -> History:
        """The job's history, over tables of all that came out."""
        tables = OutputTables(self.folder / "tables", OUTPUTS, self.schema.largest_scale)
        for output, rows in self.rows.items():
            columns = tables.schema(output).append(pa.field("batch_id", pa.int64()))
            write_deltalake(tables.folder / output, pa.Table.from_pylist(rows, schema=columns), mode="overwrite")
        written = {
            "source": {"kind": "json", "path": str(self.folder)},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"path": str(tables.folder), "evaluations": True},
        }
        settings = JobSettings.model_validate(written)
        job = Job(settings=settings, event_schema=self.schema, rules=(), checkpoint=self.checkpoint.path)
        return History(job, self.archive, self.recorded)


def _stored(row: Row) -> Row:
    return {name: value * 1000 if name in _TIMES else value for name, value in row.items()}
