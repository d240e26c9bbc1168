"""A job's configuration (`conf/*.yaml`): where events come from, which rules judge them, where results go."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from buckets.duration import DurationMs
from buckets.engine_settings import EngineSettings
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema, load_event_schema
from buckets.kafka.settings import KafkaSettings
from buckets.outputs import EVALUATIONS, TOPICS
from buckets.rule import Rule
from buckets.rule_file import load_rule_files
from buckets.rule_set import canonical_group_id, group_name
from buckets.source_files import is_hidden
from buckets.yaml_file import load_model

SourceKind = Literal["json", "csv", "parquet", "delta", "kafka"]
_PATTERN_MARKS = "*?[]{}\\"
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class SourceSettings(BaseModel):
    """Where transactions come from.

    Attributes:
        kind: JSON lines, CSV with a header line, Parquet, a Delta table, or a Kafka topic with JSON values.
        path: a folder (or a Delta table); new files are picked up as they appear.
        topic: the topic.
        starting_offsets: where a new checkpoint begins in the topic.
        max_offsets_per_trigger: how many messages one micro-batch takes at the most.
        arrival: column whose order is the arrival order; without it, files by modification time and rows as they
            stand. A Delta table needs one.
        out_of_order: what is done with a micro-batch that holds a row which the column places before rows of an
            earlier batch: the job ends before anything of it is written, or takes it as it comes.
        subfolders: whether files in folders below `path` are read too.
        max_files_per_trigger: how many files one micro-batch takes at the most.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: SourceKind
    path: str = ""
    arrival: str | None = None
    out_of_order: Literal["refuse", "take"] = "refuse"
    subfolders: bool = False
    max_files_per_trigger: int = Field(default=1000, ge=1)
    topic: TopicName | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: int = Field(default=200_000, ge=1)

    @property
    def name(self) -> str:
        """The source in words, which a checkpoint remembers."""
        return f"{self.kind} {self.topic if self.kind == 'kafka' else self.path}"

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> "SourceSettings":
        of_kafka = {"topic", "starting_offsets", "max_offsets_per_trigger"}
        of_files = {"path", "arrival", "out_of_order", "subfolders", "max_files_per_trigger"}
        needed, wrong = ("topic", of_files) if self.kind == "kafka" else ("path", of_kafka)
        if not getattr(self, needed):
            message = f"a source of kind {self.kind} needs `{needed}`"
            raise ValueError(message)
        misplaced = sorted(self.model_fields_set & wrong)
        if misplaced:
            message = f"{misplaced[0]}: a source of kind {self.kind} has no such field"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _arrival_where_it_can_be(self) -> "SourceSettings":
        if self.kind == "delta" and self.subfolders:
            message = "subfolders: a Delta table knows its files; leave it out"
            raise ValueError(message)
        if self.kind == "delta" and self.arrival is None:
            message = "a Delta table has no order of its own: name the column that has it, as `arrival: COLUMN`"
            raise ValueError(message)
        if self.kind in ("json", "csv") and self.arrival is not None:
            message = f"arrival: {self.kind} files are taken in the order of their lines; leave it out"
            raise ValueError(message)
        if self.arrival is None and "out_of_order" in self.model_fields_set:
            message = "out_of_order: goes with `arrival`, the column that has the order; leave it out"
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
    """Where results go: a folder of Delta tables, or topics of Kafka.

    Attributes:
        kind: delta or kafka.
        path: the folder of the tables.
        topics: the topic of each output; what is left out has a topic of its own name.
        evaluations: whether there is a row for every event and rule, fired or not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["delta", "kafka"] = "delta"
    path: str = ""
    topics: dict[str, TopicName] = Field(default_factory=dict)
    evaluations: bool = False

    @model_validator(mode="after")
    def _place_of_its_kind(self) -> "OutputSettings":
        if self.kind == "delta" and (not self.path or self.topics):
            message = "outputs in Delta need `path`, a folder, and no `topics`; for topics write `kind: kafka`"
            raise ValueError(message)
        if self.kind == "kafka" and self.path:
            message = "outputs in Kafka have `topics`, and no `path`; tables of them are written by `buckets audit`"
            raise ValueError(message)
        unknown = sorted(set(self.topics) - set(TOPICS))
        if unknown:
            message = f"topics.{unknown[0]}: no such output; there are {', '.join(TOPICS)}"
            raise ValueError(message)
        return self

    def topic(self, output: str) -> str:
        """The topic of an output."""
        return self.topics.get(output, output)

    def topics_in_use(self) -> dict[str, str]:
        """The topics of all outputs that there are, by output."""
        return {name: self.topic(name) for name in TOPICS if name != EVALUATIONS or self.evaluations}


class RuleSettings(BaseModel):
    """Where rules come from while the job runs: exactly one of a file or folder, a table, a topic.

    Attributes:
        path: a rule file, or a folder of them.
        table: a Delta table of rules.
        topic: a compacted topic of rules, of one partition.
        rejected_topic: where messages go that are no valid change, with the reason.
        export_topic: where the rules in force go when somebody asks for them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    table: str | None = None
    topic: TopicName | None = None
    rejected_topic: TopicName | None = None
    export_topic: TopicName | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "RuleSettings":
        places = [name for name in ("path", "table", "topic") if getattr(self, name)]
        if len(places) != 1:
            message = "give one of `path`, `table` and `topic`"
            raise ValueError(message)
        if self.topic is None and (self.rejected_topic or self.export_topic):
            message = "rejected_topic and export_topic go with `topic`"
            raise ValueError(message)
        return self

    @property
    def rejected(self) -> str:
        """The topic of rejected messages."""
        return self.rejected_topic or f"{self.topic}_rejected"

    @property
    def exported(self) -> str:
        """The topic of exported rules."""
        return self.export_topic or f"{self.topic}_export"


class AuditSettings(BaseModel):
    """What keeps topics as Delta tables.

    Attributes:
        path: the folder of the tables.
        checkpoint: of the audit query.
        interval: how often tables are written.
        compact_every: how often small files are joined.
        vacuum_every: how often files are removed that no version needs.
        keep_versions: for how long earlier versions of a table can be read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    checkpoint: str = Field(min_length=1)
    interval: DurationMs = 5_000
    compact_every: DurationMs = 3_600_000
    vacuum_every: DurationMs = 86_400_000
    keep_versions: DurationMs = 604_800_000


class JobSettings(BaseModel):
    """The whole configuration. Paths are taken from the folder of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: SourceSettings
    event_schema: str = Field(alias="schema", min_length=1)
    rules: RuleSettings
    checkpoint: str = Field(min_length=1)
    output: OutputSettings
    kafka: KafkaSettings | None = None
    audit: AuditSettings | None = None
    partitions: int | None = Field(default=None, ge=1)
    trigger: TriggerSettings = TriggerSettings(available_now=True)
    engine: EngineSettings = EngineSettings()
    spark: dict[str, str | int | bool] = Field(default_factory=dict)

    @field_validator("rules", mode="before")
    @classmethod
    def _rules_may_be_a_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _kafka_where_it_is_used(self) -> "JobSettings":
        uses = {
            "source.kind": self.source.kind == "kafka",
            "output.kind": self.output.kind == "kafka",
            "rules.topic": self.rules.topic is not None,
        }
        if self.kafka is None and any(uses.values()):
            user = next(name for name, used in uses.items() if used)
            message = f"{user} needs Kafka: add `kafka: {{bootstrap_servers: HOST:PORT}}`"
            raise ValueError(message)
        if self.partitions is not None and self.partitions > self.engine.shards:
            message = f"partitions: {self.partitions} is more than engine.shards, {self.engine.shards}"
            raise ValueError(message)
        if self.audit is not None and (self.source.kind, self.output.kind) != ("kafka", "kafka"):
            message = "audit: keeps topics as tables, and needs `kind: kafka` for source and output"
            raise ValueError(message)
        if self.kafka is not None:
            self._check_topics()
        return self

    def _check_topics(self) -> None:
        """See that no topic has two roles."""
        roles: dict[str, str] = {}
        named = {f"output.topics.{name}": topic for name, topic in self.output.topics_in_use().items()}
        named = named if self.output.kind == "kafka" else {}
        if self.source.topic is not None:
            named["source.topic"] = self.source.topic
        if self.rules.topic is not None:
            named |= {
                "rules.topic": self.rules.topic,
                "rules.rejected_topic": self.rules.rejected,
                "rules.export_topic": self.rules.exported,
            }
        for role, topic in named.items():
            if topic in roles:
                message = f"{role}: topic {topic!r} is {roles[topic]} already; each needs a topic of its own"
                raise ValueError(message)
            roles[topic] = role


class Job(BaseModel):
    """A configuration with what it points to: schema and rules loaded, paths absolute.

    Rules are those of a file or folder; a topic or a table is read when the job starts.
    """

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
    places = {name: getattr(settings.rules, name) for name in ("path", "table")}
    absolute = {name: str(base / place) for name, place in places.items() if place is not None}
    update: dict[str, Any] = {
        "source": source if source.kind != "kafka" else settings.source,
        "output": output if output.kind != "kafka" else settings.output,
        "rules": settings.rules.model_copy(update=absolute),
    }
    if settings.audit is not None:
        audit = {"path": str(base / settings.audit.path), "checkpoint": str(base / settings.audit.checkpoint)}
        update["audit"] = settings.audit.model_copy(update=audit)
    rules: tuple[Rule, ...] = ()
    if source.kind != "kafka":
        _check_source(path, source)
        written = {"checkpoint": base / settings.checkpoint, "output.path": Path(output.path)}
        if source.kind != "delta":
            _check_apart(path, source, written)
    if "path" in absolute:
        rules = load_rule_files(Path(absolute["path"]), schema)
        _check_groups(path, settings.engine, rules, schema)
    return Job(
        settings=settings.model_copy(update=update),
        event_schema=schema,
        rules=rules,
        checkpoint=base / settings.checkpoint,
    )


def _check_source(path: Path, source: SourceSettings) -> None:
    place = Path(source.path)
    marks = [mark for mark in _PATTERN_MARKS if mark in source.path]
    if marks and source.kind != "delta":
        message = (
            f"configuration {path}: source.path: {place} holds {marks[0]}, by which Spark takes it for a pattern of "
            "many paths; rename the folder"
        )
        raise BucketsError(message)
    if not place.exists():
        message = f"configuration {path}: source.path: {place} does not exist; create it or correct the path"
        raise BucketsError(message)


def _check_apart(path: Path, source: SourceSettings, written: dict[str, Path]) -> None:
    """See that a job does not write where files are listed as its source; folders that are hidden are not."""
    below = Path(source.path).resolve()
    for name, folder in written.items():
        place = folder.resolve()
        if below in place.parents and not any(map(is_hidden, place.relative_to(below).parts)):
            message = (
                f"configuration {path}: {name}: {folder} lies in source.path, where Spark would take its files for "
                "new ones of the source; move it elsewhere, with what it holds"
            )
            raise BucketsError(message)


def _check_groups(path: Path, engine: EngineSettings, rules: Iterable[Rule], schema: EventSchema) -> None:
    """See that a precision that is set for a group has a group, and is the only one for it."""
    known = {
        canonical_group_id(rule.group_by, rule.where, schema): group_name(rule.group_by, rule.where) for rule in rules
    }
    identities = [group.group_id(schema) for group in engine.precision.groups]
    for index, (group, identity) in enumerate(zip(engine.precision.groups, identities, strict=True)):
        place = f"configuration {path}: engine.precision.groups[{index + 1}]"
        if identity in identities[:index]:
            message = f"{place}: the same group stands there twice"
            raise BucketsError(message)
        if identity not in known:
            groups = "; ".join(sorted(set(known.values())))
            message = f"{place}: no rule has the group {group.name!r}; groups of the rules: {groups}"
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
