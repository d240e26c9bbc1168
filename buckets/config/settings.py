"""A job's configuration file: where events come from, which rules evaluate them, where results go."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from buckets.config.engine import EngineSettings
from buckets.config.environment import Settings
from buckets.config.kafka import KafkaSettings, TopicName, authority_faults, certificate_faults
from buckets.config.lists import ListName, ListSettings
from buckets.config.output import OutputSettings, TableSettings
from buckets.config.source import SourceSettings
from buckets.duration import DurationMs, format_duration


class VerdictSettings(Settings):
    """Where verdicts are kept: in a table, which is the default, or in a topic that the audit keeps as a table.

    Attributes:
        table: a Delta table; where it is left out, one beside the tables of alerts.
        topic: a topic, which other programs may write to as well.
    """

    table: str | None = Field(default=None, min_length=1)
    topic: TopicName | None = None

    def _faults(self) -> Iterator[str]:
        if self.table is not None and self.topic is not None:
            yield "give one of `table` and `topic`"


BYTES_PER_UNIT = {
    "": 1,
    "b": 1,
    **{f"{prefix}ib": 1 << 10 * power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
}
LARGEST_BYTES = 1 << 50
_FORM = re.compile(r"(\d{1,16}(?:\.\d{1,6})?) *([a-z]{0,3})", re.ASCII | re.IGNORECASE)


def parse_size_bytes(text: Any) -> int:
    """Read a size such as `256MiB` or `1.5GB` as bytes, 0 to 1 PiB; ValueError if it is none."""
    is_written = isinstance(text, (int, float, str)) and not isinstance(text, bool)
    match = _FORM.fullmatch(str(text).strip()) if is_written else None
    unit = BYTES_PER_UNIT.get(match[2].lower()) if match is not None else None
    if match is None or unit is None:
        message = f"{_short(text)} is not a size; write 0 or more, as in 0, 65536, 256MiB or 1.5GiB"
        raise ValueError(message)
    size = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if size > LARGEST_BYTES:
        message = f"{_short(text)} is more than the limit of 1024TiB"
        raise ValueError(message)
    return size


def _short(value: Any) -> str:
    written = repr(value)
    return written if len(written) <= 40 else f"{written[:40]}..."


SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
"""A pydantic field that is written as a size and read as bytes."""


class StateSettings(Settings):
    """The `state` part of a job's configuration.

    Attributes:
        log: how much memory the newest values in the logs of all shards take together, before the oldest are moved to
            the store entry by entry. More of it: fewer writes for keys that change often, more memory in each Python
            worker, and a longer first batch after a start, which reads the logs: up to twice as much, with values that
            were replaced.
        cache: how much of what was used lately, beside the log, each Python worker keeps in memory. More of it: fewer
            reads of keys that come again after a while.
    """

    log: SizeBytes = 512 << 20
    cache: SizeBytes = 256 << 20


Role = Literal["read", "analyst", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "analyst", "admin")
"""Each may do what those before it may: look; give verdicts, snooze and draft; change what is in force."""
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 8484
_SHORTEST_TOKEN = 16


def _long_token(value: SecretStr | None) -> SecretStr | None:
    if value is not None and len(value.get_secret_value()) < _SHORTEST_TOKEN:
        message = f"is shorter than {_SHORTEST_TOKEN} characters; make one with `openssl rand -hex 16`"
        raise ValueError(message)
    return value


class ConsoleSettings(Settings):
    """How the console of a job is reached.

    Attributes:
        host: the address that it listens on.
        port: the port there.
        names: further names under which it is reached, as a proxy passes them on.
        token: what people give to sign in, and a proxy as a bearer token.
        trusted_user_header: the header in which a proxy says who somebody is.
        roles: what people may do, by the names in that header.
        role: what everybody else may do; left out: everything, or with `trusted_user_header` only look.
    """

    host: str = Field(default=LOOPBACK_NAMES[0], min_length=1)
    port: int = Field(default=DEFAULT_PORT, ge=1, le=65_535)
    names: tuple[str, ...] = ()
    token: SecretStr | None = None
    trusted_user_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,100}$")
    roles: dict[str, Role] = Field(default_factory=dict)
    role: Role | None = None

    _token = field_validator("token")(_long_token)

    def _faults(self) -> Iterator[str]:
        if self.host not in LOOPBACK_NAMES and self.token is None:
            yield (
                f"host {self.host} can be reached from elsewhere, and nothing says who may come in; add a token, or "
                "leave host out to listen on this machine only"
            )
        if self.roles and self.trusted_user_header is None:
            yield "roles go by the names that a proxy passes on; add trusted_user_header, or write role for all"

    def role_of(self, name: str) -> Role:
        """Return what a person may do."""
        return self.roles.get(name) or self.role or ("admin" if self.trusted_user_header is None else "read")


class MetricsSettings(Settings):
    """The `metrics` part of a configuration.

    Attributes:
        port: the port on which metrics are served.
        host: the address on which it listens; by default only this machine reaches it.
        ready_lag: a job that is behind by more messages than this is not ready.
    """

    port: int = Field(ge=1, le=65_535)
    host: str = Field(default=LOOPBACK_NAMES[0], min_length=1)
    ready_lag: int = Field(default=100_000, ge=0)

    @property
    def place(self) -> str:
        """Where it answers, in words."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServeSettings(Settings):
    """How `buckets serve` answers calls about single payments.

    Attributes:
        host: the address that it listens on.
        port: the port there.
        topic: the topic of the source to which payments are written; the first one, where it is left out.
        key: the field by whose text messages have their key, and so their partition.
        answer_within: how long a call waits for its answer; after that it is `undecided`.
        undecided: what a caller is told to do then.
        most_waiting: so many payments wait at once; further ones are refused.
        token: what callers give as a bearer token.
        certificate_file: PEM file of the certificate by which it is reached by HTTPS; with it goes `key_file`.
        key_file: PEM file of its key.
        ca_file: PEM file of the authorities one of which must have signed the certificate of each caller.
    """

    host: str = Field(default=LOOPBACK_NAMES[0], min_length=1)
    port: int = Field(default=8485, ge=1, le=65_535)
    topic: TopicName | None = None
    key: str | None = Field(default=None, min_length=1)
    answer_within: DurationMs = Field(default=50, ge=1)
    undecided: Literal["allow", "review"] = "review"
    most_waiting: int = Field(default=1_000, ge=1, le=100_000)
    token: SecretStr | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None

    _token = field_validator("token")(_long_token)

    def _faults(self) -> Iterator[str]:
        if self.is_open:
            yield (
                f"host {self.host} can be reached from elsewhere, and nothing says who may call; add a token or a "
                "ca_file, or leave host out to listen on this machine only"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            yield "certificate_file and key_file go together"
        elif self.certificate_file is not None and self.key_file is not None:
            yield from certificate_faults(self.certificate_file, self.key_file, None)
        elif self.ca_file is not None:
            yield "ca_file: certificates of callers need HTTPS; add certificate_file and key_file"
        yield from authority_faults(self.ca_file)

    @property
    def is_open(self) -> bool:
        """Whether anybody may call who reaches it, and others than this machine do."""
        return self.host not in LOOPBACK_NAMES and self.token is None and self.ca_file is None


STALL_PATIENCE_MS = 1_800_000
SHORTEST_STALL_MS = 1_000
START_PATIENCE_MS = 600_000
STORE_PATIENCE_MS = 600_000
SHUTDOWN_WITHIN_MS = 20_000  # With the end of Spark's session less than the 30 seconds after which Kubernetes kills

_REGISTRY = "`registry: {url: http://HOST:PORT}`"
_OF_SCHEMAS = {"value": ("source.format", ", or name a file as source.schema_file"), "key": ("source.key_format", "")}
"""By part of a message, the setting that says how it is written, and what may be said in place of a registry."""


class TriggerSettings(Settings):
    """When micro-batches run: until everything available is done (the default), or for ever, at an interval.

    Attributes:
        available_now: whether the job ends when everything available is done.
        interval: how often a micro-batch begins; with 0ms, when the last one has ended.
    """

    available_now: bool = False
    interval: DurationMs | None = None

    def _faults(self) -> Iterator[str]:
        if self.available_now == (self.interval is not None):
            yield "give either `available_now: true` or `interval: 5s`"


class RuleSettings(Settings):
    """Where rules come from while the job runs: exactly one of a file or folder, a table, a topic.

    Attributes:
        path: a rule file, or a folder of them.
        table: a Delta table of rules.
        topic: a compacted topic of rules, of one partition.
        rejected_topic: where messages that are not a valid change go, with the reason.
        export_topic: where the rules in force go when they are asked for.
    """

    path: str | None = None
    table: str | None = None
    topic: TopicName | None = None
    rejected_topic: TopicName | None = None
    export_topic: TopicName | None = None

    def _faults(self) -> Iterator[str]:
        if len([origin for origin in (self.path, self.table, self.topic) if origin]) != 1:
            yield "give one of `path`, `table` and `topic`"
        if self.topic is None and (self.rejected_topic or self.export_topic):
            yield "rejected_topic and export_topic go with `topic`"

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
        checkpoint: the checkpoint of the audit query.
        interval: how often tables are written.
        metrics: where `buckets audit` serves its metrics; None: nowhere.
    """

    path: str = Field(min_length=1)
    checkpoint: str = Field(min_length=1)
    interval: DurationMs = 5_000
    metrics: MetricsSettings | None = None


class ArchiveSettings(Settings):
    """Where all that has arrived is kept, typed, with the batch that scored it.

    Attributes:
        path: the folder of the table.
        cluster_by: the field by which its files are sorted; None: the first one that the first rules group by.
    """

    path: str = Field(min_length=1)
    cluster_by: str | None = None


def _names_apart(value: dict[str, ListSettings]) -> dict[str, ListSettings]:
    names: dict[str, str] = {}
    for name in value:
        other = names.setdefault(name.lower(), name)
        if other != name:
            message = f"{other} and {name} differ only in upper and lower case; rename one of them"
            raise ValueError(message)
    return value


def _stall_ms(value: int) -> int:
    if value < SHORTEST_STALL_MS:
        message = f"{format_duration(value)} is shorter than the limit of {format_duration(SHORTEST_STALL_MS)}"
        raise ValueError(message)
    return value


Profile = Literal["latency", "throughput"]


class JobSettings(Settings):
    """The whole configuration. Relative paths begin at the folder of the file.

    Attributes:
        source: where events come from.
        event_schema: the file of the event schema.
        rules: a rule file or a folder of them, or a mapping.
        lists: lists that rules look into, by name.
        checkpoint: the folder of the job's state, used by one job at a time.
        output: where results go.
        kafka: how Kafka is reached, where anything of the job is in topics.
        audit: where `buckets audit` keeps topics as tables.
        verdicts: where verdicts on alerts are kept.
        archive: where all that has arrived is kept.
        metrics: where the job serves its metrics; left out: nowhere.
        console: who may use the console, and from where.
        serve: how `buckets serve` answers calls about single payments.
        partitions: how many tasks score; left out: as many as Spark decides.
        profile: for what Java is set up. With `throughput` it compiles less in a job's first minutes and keeps its heap
            small; with `latency` it does as it does by itself, and small batches take less time.
        trigger: when micro-batches run.
        engine: what decides results.
        state: how much memory state takes.
        spark: settings that are passed on to Spark.
        stall_patience: for how long nothing may get done in a micro-batch, not even one task, before the job ends; at
            least 1s.
        start_patience: for how long Python workers that do not answer in time are started again.
        store_patience: how long to wait for an object store that does not answer while the job runs.
        shutdown_within: how long the running micro-batch may take to end after Ctrl-C or SIGTERM; after that it is
            abandoned, and done again at the next start.
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
    metrics: MetricsSettings | None = None
    console: ConsoleSettings = ConsoleSettings()
    serve: ServeSettings = ServeSettings()
    partitions: int | None = Field(default=None, ge=1)
    profile: Profile = "throughput"
    trigger: TriggerSettings = TriggerSettings(available_now=True)
    stall_patience: DurationMs = STALL_PATIENCE_MS
    start_patience: DurationMs = START_PATIENCE_MS
    store_patience: DurationMs = STORE_PATIENCE_MS
    shutdown_within: DurationMs = SHUTDOWN_WITHIN_MS
    engine: EngineSettings = EngineSettings()
    state: StateSettings = StateSettings()
    spark: dict[str, str | int | bool] = Field(default_factory=dict)

    _lists = field_validator("lists")(_names_apart)
    _stall = field_validator("stall_patience")(_stall_ms)

    @field_validator("rules", mode="before")
    @classmethod
    def _rules_may_be_a_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    def _faults(self) -> Iterator[str]:
        faults = list(self._faults_of_parts())
        if faults:
            yield "; ".join(faults)

    def _faults_of_parts(self) -> Iterator[str]:
        uses = {
            "source.kind": self.source.has_topics,
            "output.kind": not self.output.path,
            "rules.topic": self.rules.topic is not None,
            "verdicts.topic": self.verdicts.topic is not None,
            **{f"lists.{name}.topic": each.topic is not None for name, each in self.lists.items()},
        }
        if self.kafka is None and any(uses.values()):
            user = next(name for name, used in uses.items() if used)
            yield f"{user} needs Kafka: add `kafka: {{bootstrap_servers: HOST:PORT}}`"
        for part, written_in in self.source.registered.items():
            if self.kafka is not None and self.kafka.registry is None:
                setting, way_out = _OF_SCHEMAS[part]
                yield f"{setting}: {written_in} needs schemas: add {_REGISTRY} to `kafka`{way_out}"
        if self.output.format != "json" and self.kafka is not None and self.kafka.registry is None:
            yield f"output.format: {self.output.format} needs a registry: add {_REGISTRY} to `kafka`"
        if self.partitions is not None and self.partitions > self.engine.shards:
            yield f"partitions: {self.partitions} is more than engine.shards, {self.engine.shards}"
        if self.audit is not None and not self.source.has_topics:
            yield "audit: keeps topics as tables, and needs a source of `kind: kafka`"
        if self.verdicts.topic is not None and self.audit is None:
            yield "verdicts.topic: needs `audit`, which keeps the topic as a table; add it, or write `table`"
        if self.metrics and self.audit and self.audit.metrics and self.metrics.place == self.audit.metrics.place:
            yield f"audit.metrics.port: {self.metrics.port} is the port of the job; choose another one"
        if self.serve.topic is not None and self.serve.topic not in self.source.all_topics:
            yield f"serve.topic: {self.serve.topic} is no topic of the source; name one of it, or leave it out"
        if self.kafka is not None:
            yield from self._topic_faults()

    def _topic_faults(self) -> Iterator[str]:
        roles: dict[str, str] = {}
        named = {f"output.topics.{name}": topic for name, topic in self.output.topics_in_use().items()}
        named |= {f"source topic {topic}": topic for topic in self.source.all_topics[1:]}
        if self.source.all_topics:
            named["source.topic"] = self.source.all_topics[0]
        if self.rules.topic is not None:
            named |= {
                "rules.topic": self.rules.topic,
                "rules.rejected_topic": self.rules.rejected,
                "rules.export_topic": self.rules.exported,
            }
        if self.verdicts.topic is not None:
            named["verdicts.topic"] = self.verdicts.topic
        named |= {f"lists.{name}.topic": each.topic for name, each in self.lists.items() if each.topic is not None}
        written = {role: topic for role, topic in named.items() if not role.startswith("source")}
        matched = next((role for role, topic in written.items() if self.source.selection.matches(topic)), None)
        if matched is not None:
            yield (
                f"source.topic_pattern: {self.source.topic_pattern!r} matches {written[matched]!r}, which is "
                f"{matched}: the job would read it as events; narrow it, or name the topic otherwise"
            )
        for role, topic in named.items():
            if topic in roles:
                yield f"{role}: topic {topic!r} is {roles[topic]} already; each needs a topic of its own"
            roles[topic] = role
