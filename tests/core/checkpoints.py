"""Checkpoints for tests: what they are made for, and batches that run on them."""

import json
from pathlib import Path
from typing import Any

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.checkpoint.record_files import seal_json
from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.feeds.rules.rule_book import RuleBook
from buckets.rules.rule import Rule
from tests.core.examples import SCHEMA, rule, until
from tests.fixed_rules import FixedRules

ONE, OTHER = [rule("one")], [rule("other", group_by=["kind"])]


def basis(
    source: str = "json /events", schema: EventSchema = SCHEMA, subfolders: bool = False, **engine
) -> CheckpointIdentity:
    return CheckpointIdentity(source, schema, EngineSettings.model_validate(engine), subfolders)


def schema_with(**changes) -> EventSchema:
    return EventSchema.model_validate(SCHEMA.model_dump() | changes)


def with_time(**changes) -> EventSchema:
    """The schema with another time."""
    return schema_with(event_time={"field": "at"} | changes)


def with_attributes(**changes) -> EventSchema:
    """The schema with other attributes; None takes one away."""
    attributes = SCHEMA.attributes | changes
    return schema_with(attributes={name: kind for name, kind in attributes.items() if kind is not None})


def with_measures(**changes) -> EventSchema:
    """The schema with other measures; None takes one away."""
    measures = SCHEMA.model_dump()["measures"] | changes
    return schema_with(measures={name: measure for name, measure in measures.items() if measure is not None})


def book_of(checkpoint: Checkpoint, rules: list[Rule]) -> RuleBook:
    return RuleBook(checkpoint, FixedRules(rules), SCHEMA, EngineSettings(allowed_lateness="0ms"))


def ran(book: RuleBook, batch_id: int, latest_ms: int | None = 0) -> int:
    """Run a batch to its end; the version of the rules that evaluated it."""
    rule_set = book.for_batch(batch_id)
    book.done(batch_id, rule_set, until(latest_ms))
    return rule_set.version


def files(checkpoint: Checkpoint) -> set[str]:
    folder = checkpoint.path
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def written_in(file: Path) -> Any:
    """What a record says, without its checksum; damage is noticed where the product reads it."""
    record = json.loads(file.read_bytes())
    record.pop("checksum", None)
    return record


def change_job(checkpoint: Checkpoint, **changes) -> None:
    """Change what is written in job.json; None takes a field away."""
    job = checkpoint.path / "buckets" / "job.json"
    written = written_in(job) | changes
    write_sealed(job, {name: value for name, value in written.items() if value is not None}, checkpoint.path)


def write_sealed(file: Path, record: Any, checkpoint: Path | None = None) -> None:
    """Write a record with its checksum; one of a checkpoint is where it lies there."""
    file.write_bytes(seal_json(record, place="" if checkpoint is None else file.relative_to(checkpoint).as_posix()))


def terms(
    output: str = "delta",
    arrival: str | None = None,
    evaluations: bool = False,
    isolation: str | None = None,
    **changes,
) -> Terms:
    now = basis(**changes)
    return Terms(
        event_schema=now.schema,
        engine=now.engine,
        evaluations=evaluations,
        output=output,
        arrival=arrival,
        isolation=isolation,
    )
