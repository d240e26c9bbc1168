"""A job's configuration (`conf/*.yaml`): where events come from, which rules judge them, where results go."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from buckets.duration import DurationMs
from buckets.engine_settings import EngineSettings
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema, load_event_schema
from buckets.rule import Rule
from buckets.rule_file import load_rules
from buckets.rule_set import group_id, group_name
from buckets.yaml_file import load_model

SourceKind = Literal["json", "csv", "parquet", "delta"]


class SourceSettings(BaseModel):
    """Where transactions come from.

    Attributes:
        kind: JSON lines, CSV with a header line, Parquet, or a Delta table.
        path: a folder (or a Delta table); new files are picked up as they appear.
        arrival: column whose order is the arrival order; without it, files by modification time and rows as they
            stand. A Delta table needs one.
        max_files_per_trigger: how many files one micro-batch takes at the most.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: SourceKind
    path: str = Field(min_length=1)
    arrival: str | None = None
    max_files_per_trigger: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _arrival_where_it_can_be(self) -> "SourceSettings":
        if self.kind == "delta" and self.arrival is None:
            message = "a Delta table has no order of its own: name the column that has it, as `arrival: COLUMN`"
            raise ValueError(message)
        if self.kind in ("json", "csv") and self.arrival is not None:
            message = f"arrival: {self.kind} files are taken in the order of their lines; leave it out"
            raise ValueError(message)
        return self


class TriggerSettings(BaseModel):
    """When micro-batches run: until all that is there is done (the default), or for ever, at an interval."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    available_now: bool = False
    interval: DurationMs | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "TriggerSettings":
        if self.available_now == (self.interval is not None):
            message = "give either `available_now: true` or `interval: 5s`"
            raise ValueError(message)
        return self


class OutputSettings(BaseModel):
    """Where results go: a folder of Delta tables.

    Attributes:
        path: the folder.
        evaluations: whether there is a row for every event and rule, fired or not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    evaluations: bool = False


class JobSettings(BaseModel):
    """The whole configuration. Paths are taken from the folder of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: SourceSettings
    event_schema: str = Field(alias="schema", min_length=1)
    rules: str = Field(min_length=1)
    checkpoint: str = Field(min_length=1)
    output: OutputSettings
    trigger: TriggerSettings = TriggerSettings(available_now=True)
    engine: EngineSettings = EngineSettings()
    spark: dict[str, str | int | bool] = Field(default_factory=dict)


class Job(BaseModel):
    """A configuration with what it points to: schema and rules loaded, paths absolute."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    settings: JobSettings
    event_schema: EventSchema
    rules: tuple[Rule, ...]
    checkpoint: Path


def load_job(path: Path) -> Job:
    """Read a configuration, and the schema and rules that it names.

    Raises:
        BucketsError: a file cannot be read or is not valid; says which, where and why.
    """
    settings = load_model(path, JobSettings, "configuration")
    base = path.resolve().parent
    schema = load_event_schema(base / settings.event_schema)
    source = settings.source.model_copy(update={"path": str(base / settings.source.path)})
    output = settings.output.model_copy(update={"path": str(base / settings.output.path)})
    _check_source(path, source)
    rules = load_rules(base / settings.rules, schema)
    _check_groups(path, settings.engine, rules)
    return Job(
        settings=settings.model_copy(update={"source": source, "output": output}),
        event_schema=schema,
        rules=rules,
        checkpoint=base / settings.checkpoint,
    )


def _check_source(path: Path, source: SourceSettings) -> None:
    place = Path(source.path)
    if not place.exists():
        message = f"configuration {path}: source.path: {place} does not exist; create it or correct the path"
        raise BucketsError(message)


def _check_groups(path: Path, engine: EngineSettings, rules: Iterable[Rule]) -> None:
    """See that a precision that is set for a group has a group."""
    known = {group_id(rule.group_by, rule.where): group_name(rule.group_by, rule.where) for rule in rules}
    for number, group in enumerate(engine.precision.groups, 1):
        if group.group_id not in known:
            message = (
                f"configuration {path}: engine.precision.groups[{number}]: no rule has the group {group.name!r}; "
                f"groups of the rules: {'; '.join(sorted(set(known.values())))}"
            )
            raise BucketsError(message)


def load_engine_settings(path: Path) -> EngineSettings:
    """Read the `engine` part of a configuration; other parts are not looked at.

    Raises:
        BucketsError: the file cannot be read, or its engine part is not valid.
    """
    return load_model(path, _EngineOnly, "configuration").engine


class _EngineOnly(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    engine: EngineSettings = EngineSettings()
