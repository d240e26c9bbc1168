"""What stands in a job's configuration file: where events come from, which rules evaluate them, where results go."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from buckets.config.engine import EngineSettings
from buckets.config.kafka import KafkaSettings
from buckets.config.lists import ListName, ListSettings
from buckets.config.state import StateSettings
from buckets.config.verdicts import VerdictSettings
from buckets.duration import DurationMs, format_duration
from buckets.events.schema import SourceKind
from buckets.outputs.columns import EVALUATIONS, TOPICS

LEAST_KEPT_MS = 600_000
"""For how long versions of the tables of results are kept at least."""
STALL_PATIENCE_MS = 1_800_000
SHORTEST_STALL_MS = 1_000
START_PATIENCE_MS = 600_000
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class SourceSettings(BaseModel):
    """Where transactions come from.

    Attributes:
        kind: JSON lines, CSV with a header line, Parquet, a Delta table, or a Kafka topic with JSON values.
        path: a folder (or a Delta table); new files are picked up as they appear.
        topic: the topic.
        starting_offsets: where a new checkpoint begins in the topic.
        max_offsets_per_trigger: how many messages one micro-batch takes at most.
        arrival: column whose order is the arrival order; without it, files are taken by modification time and
            rows as they stand. A Delta table needs one.
        out_of_order: what is done with a micro-batch that has a row which the column orders before rows of an earlier
            batch: `refuse` ends the job before anything of the batch is written, `take` takes the row as it comes.
        subfolders: whether files in folders below `path` are read too.
        max_files_per_trigger: how many files one micro-batch takes at most.
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
        """The kind and location of the source, which a checkpoint remembers."""
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
    def _arrival_fits_the_kind(self) -> "SourceSettings":
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
    """When micro-batches run: until everything available is done (the default), or for ever, at an interval."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    available_now: bool = False
    interval: DurationMs | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "TriggerSettings":
        if self.available_now == (self.interval is not None):
            message = "give either `available_now: true` or `interval: 5s`"
            raise ValueError(message)
        return self


class TableSettings(BaseModel):
    """How tables are kept short while they are appended to.

    Attributes:
        compact: whether small files of the tables are joined and old ones removed.
        keep_versions: how long earlier versions of a table can be read; None: as the table says, or a day.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    compact: bool = True
    keep_versions: DurationMs | None = None

    @model_validator(mode="after")
    def _kept_for_long_enough(self) -> Self:
        if self.keep_versions is not None and self.keep_versions < LEAST_KEPT_MS:
            found, least = format_duration(self.keep_versions), format_duration(LEAST_KEPT_MS)
            message = f"keep_versions: {found} is less than {least}, which a large write can take; keep them longer"
            raise ValueError(message)
        if not self.compact and self.keep_versions is not None:
            message = "keep_versions: goes with `compact: true`; leave one of them out"
            raise ValueError(message)
        return self


class OutputSettings(TableSettings):
    """Where results go: a folder of Delta tables, or topics of Kafka.

    Attributes:
        kind: delta or kafka.
        path: the folder of the tables.
        topics: the topic of each output; one that is left out goes to the topic of its own name.
        evaluations: whether there is a row for every event and rule, fired or not.
        message_version: of the schemas of alerts and evaluations in topics; 1 for consumers that do not know `terms`.
    """

    kind: Literal["delta", "kafka"] = "delta"
    path: str = ""
    topics: dict[str, TopicName] = Field(default_factory=dict)
    evaluations: bool = False
    message_version: Literal[1, 2] = 2

    @model_validator(mode="after")
    def _tables_are_kept(self) -> "OutputSettings":
        if self.kind == "kafka" and self.model_fields_set & set(TableSettings.model_fields):
            message = "outputs in Kafka have no tables, so no `compact` and `keep_versions`; `audit` has its own"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _path_or_topics(self) -> "OutputSettings":
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
        """The topics of all outputs in use, by output."""
        return {name: self.topic(name) for name in TOPICS if name != EVALUATIONS or self.evaluations}


class RuleSettings(BaseModel):
    """Where rules come from while the job runs: exactly one of a file or folder, a table, a topic.

    Attributes:
        path: a rule file, or a folder of them.
        table: a Delta table of rules.
        topic: a compacted topic of rules, of one partition.
        rejected_topic: where messages that are not a valid change go, with the reason.
        export_topic: where the rules in force go when they are asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    table: str | None = None
    topic: TopicName | None = None
    rejected_topic: TopicName | None = None
    export_topic: TopicName | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> "RuleSettings":
        origins = [name for name in ("path", "table", "topic") if getattr(self, name)]
        if len(origins) != 1:
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


class AuditSettings(TableSettings):
    """How topics are kept as Delta tables.

    Attributes:
        path: the folder of the tables.
        checkpoint: of the audit query.
        interval: how often tables are written.
    """

    path: str = Field(min_length=1)
    checkpoint: str = Field(min_length=1)
    interval: DurationMs = 5_000


class ArchiveSettings(BaseModel):
    """Where all that has arrived is kept, typed, with the batch that scored it.

    Attributes:
        path: the folder of the table.
        cluster_by: the field by which its files are sorted; None: the first one that the first rules group by.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    cluster_by: str | None = None


class JobSettings(BaseModel):
    """The whole configuration. Relative paths begin at the folder of the file.

    Attributes:
        stall_patience: for how long nothing may get done in a micro-batch, not even one task, before the job ends.
        start_patience: for how long Python workers that do not answer in time are started again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: SourceSettings
    event_schema: str = Field(alias="schema", min_length=1)
    rules: RuleSettings
    lists: dict[ListName, ListSettings] = Field(default_factory=dict)
    checkpoint: str = Field(min_length=1)
    output: OutputSettings
    kafka: KafkaSettings | None = None
    audit: AuditSettings | None = None
    verdicts: VerdictSettings = VerdictSettings()
    archive: ArchiveSettings | None = None
    partitions: int | None = Field(default=None, ge=1)
    trigger: TriggerSettings = TriggerSettings(available_now=True)
    stall_patience: DurationMs = STALL_PATIENCE_MS
    start_patience: DurationMs = START_PATIENCE_MS
    engine: EngineSettings = EngineSettings()
    state: StateSettings = StateSettings()
    spark: dict[str, str | int | bool] = Field(default_factory=dict)

    @field_validator("rules", mode="before")
    @classmethod
    def _rules_may_be_a_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("lists")
    @classmethod
    def _names_apart(cls, value: dict[str, ListSettings]) -> dict[str, ListSettings]:
        names: dict[str, str] = {}
        for name in value:
            other = names.setdefault(name.lower(), name)
            if other != name:
                message = f"{other} and {name} differ in upper and lower case alone; rename one of them"
                raise ValueError(message)
        return value

    @field_validator("stall_patience")
    @classmethod
    def _not_at_once(cls, value: int) -> int:
        if value < SHORTEST_STALL_MS:
            message = f"{format_duration(value)} is shorter than the limit of {format_duration(SHORTEST_STALL_MS)}"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _kafka_where_it_is_used(self) -> "JobSettings":
        uses = {
            "source.kind": self.source.kind == "kafka",
            "output.kind": self.output.kind == "kafka",
            "rules.topic": self.rules.topic is not None,
            "verdicts.topic": self.verdicts.topic is not None,
            **{f"lists.{name}.topic": each.kind == "kafka" for name, each in self.lists.items()},
        }
        faults = []
        if self.kafka is None and any(uses.values()):
            user = next(name for name, used in uses.items() if used)
            faults.append(f"{user} needs Kafka: add `kafka: {{bootstrap_servers: HOST:PORT}}`")
        if self.partitions is not None and self.partitions > self.engine.shards:
            faults.append(f"partitions: {self.partitions} is more than engine.shards, {self.engine.shards}")
        if self.audit is not None and (self.source.kind, self.output.kind) != ("kafka", "kafka"):
            faults.append("audit: keeps topics as tables, and needs `kind: kafka` for source and output")
        if self.verdicts.topic is not None and self.audit is None:
            faults.append("verdicts.topic: needs `audit`, which keeps the topic as a table; add it, or write `table`")
        if self.kafka is not None:
            faults += self._topic_faults()
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _topic_faults(self) -> Iterator[str]:
        """Return each topic that has two roles."""
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
        if self.verdicts.topic is not None:
            named["verdicts.topic"] = self.verdicts.topic
        named |= {f"lists.{name}.topic": each.topic for name, each in self.lists.items() if each.topic is not None}
        for role, topic in named.items():
            if topic in roles:
                yield f"{role}: topic {topic!r} is {roles[topic]} already; each needs a topic of its own"
            roles[topic] = role
