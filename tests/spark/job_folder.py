"""A folder with everything that a job needs, its source files, and the Delta tables that it writes."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from buckets.config.job import load_job
from buckets.monitor.pace import BatchReport
from buckets.spark.prepared_job import Listener, prepare
from buckets.spark.query import ScoringQuery
from tests.spark.payments import RULES, SCHEMA

OUTPUTS = ("alerts", "shadow_alerts", "late_events", "collisions", "duplicates", "dead_letters", "batches")
FIRST_MTIME_S = 1_700_000_000
Row = dict[str, Any]


class JobFolder:
    """`conf.yaml`, `schema.yaml`, `rules.yaml` and `source/`; checkpoint in `checkpoint/`, tables in `tables/`."""

    def __init__(self, root: Path, **changes: Any) -> None:
        """Write the folder; `changes` go over the fields of the configuration, None leaves one out."""
        self.root = root
        self.source = root / "source"
        self.tables = root / "tables"
        self.checkpoint = root / "checkpoint"
        self.source.mkdir(parents=True, exist_ok=True)
        self.write_rules(RULES)
        self.write_schema(SCHEMA)
        self.configure(**changes)

    def configure(self, **changes: Any) -> None:
        """Write the configuration."""
        conf = {
            "source": {"kind": "json", "path": "source", "max_files_per_trigger": 1},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"path": "tables", "evaluations": True},
            "engine": {"shards": 4, "allowed_lateness": "100ms"},
        } | changes
        self.conf = self.root / "conf.yaml"
        self.conf.write_text(yaml.safe_dump({key: value for key, value in conf.items() if value is not None}))

    def configure_also(self, **changes: Any) -> None:
        """Write the configuration as it is, with changes."""
        self.configure(**(yaml.safe_load(self.conf.read_text()) | changes))

    def write_rules(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """Write the rule file."""
        (self.root / "rules.yaml").write_text(yaml.safe_dump({"rules": list(rules)}))

    def write_schema(self, schema: Mapping[str, Any], name: str = "schema.yaml") -> None:
        """Write the event schema, or another one."""
        (self.root / name).write_text(yaml.safe_dump(dict(schema)))

    def copy_to(self, root: Path) -> "JobFolder":
        """The job with what it has done, in another folder, over the same source."""
        for done in (self.checkpoint, self.tables):
            shutil.copytree(done, root / done.name)
        return JobFolder(root, source={"kind": "json", "path": str(self.source), "max_files_per_trigger": 1})

    def add_file(self, number: int, lines: Sequence[str], suffix: str = "jsonl") -> Path:
        """Put a text file into the source, whole at once; files are taken in the order of their numbers."""
        path = self.source / f"{number:03d}.{suffix}"
        hidden = self.root / f"{path.name}.partial"
        hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.utime(hidden, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))
        return hidden.replace(path)

    def add_events(self, events: Sequence[Row], files: int, first: int = 0) -> None:
        """Put events into so many JSON files."""
        size = -(-len(events) // files)
        for number in range(files):
            self.add_file(first + number, [json.dumps(event) for event in events[number * size : (number + 1) * size]])

    def query(
        self,
        spark: SparkSession,
        on_batch: Callable[[BatchReport], None],
        say: Callable[[str], None] = lambda line: None,
    ) -> ScoringQuery:
        """The job's query, in the session of the tests."""
        return prepare(load_job(self.conf)).query(spark, Listener(on_batch, say=say))

    def run(self, spark: SparkSession, say: Callable[[str], None] = lambda line: None) -> list[BatchReport]:
        """Run the job to the end of what is there; `say` is told what arrives out of order."""
        reports: list[BatchReport] = []
        self.query(spark, reports.append, say).run(None)
        return reports

    def rows(self, name: str) -> list[Row]:
        """The rows of a table, sorted."""
        return sorted(read_table(self.tables / name), key=repr)

    def all_rows(self) -> dict[str, list[Row]]:
        """The rows of all tables of results."""
        tables = (path.name for path in sorted(self.tables.iterdir()) if path.is_dir() and path.name != "rule_changes")
        return {name: self.rows(name) for name in tables}


def read_table(path: Path) -> list[Row]:
    """The rows of a Delta table."""
    found = QueryBuilder().register("rows", DeltaTable(path)).execute("select * from rows")
    rows: list[Row] = pa.table(found.read_all()).to_pylist()
    return rows


def written_batches(table: Path) -> set[int]:
    """The batches that a Delta table has a commit for."""
    batches = set()
    for commit in (table / "_delta_log").glob("*.json"):
        actions = map(json.loads, commit.read_text(encoding="utf-8").splitlines())
        batches |= {action["txn"]["version"] for action in actions if "txn" in action}
    return batches
