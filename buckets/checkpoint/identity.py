"""What a checkpoint's state depends on, which of it may change; and the terms of a batch."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from buckets.config.engine import EngineSettings
from buckets.config.source import KINDS
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.events.decoded import PinnedProtobuf
from buckets.events.schema import EventSchema, KeyFormat
from buckets.timeline.codec import CODEC_VERSION

if TYPE_CHECKING:  # Workers read terms but know no job.
    from buckets.config.job import Job

FORMAT = 1  # The format of the whole checkpoint
_EDGE = "engine.precision.edge"
_OF_STATE: Sequence[tuple[str, str, Callable[[Any], str]]] = (
    ("engine.shards", "shards", str),
    ("engine.allowed_lateness", "allowed_lateness_ms", format_duration),
)
_OF_SOURCE = (("source.subfolders", "subfolders", lambda is_read: str(is_read).lower()),)
"""Settings that must not change: their paths, their names in the record, and how they are shown."""


@dataclass(frozen=True)
class CheckpointIdentity:
    """The source, event schema and settings of a start.

    Whatever determines how state is read must not change: source, shards, lateness, the id, the encoding of the time,
    the type of each field. Settings that only decide which events are taken from now on, or how they are treated, may
    change. Reading of subfolders must not change either: Spark lists their files as taken, read or not.
    """

    source: str
    schema: EventSchema
    engine: EngineSettings
    subfolders: bool = False
    unjudged: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: "Job") -> "CheckpointIdentity":
        """Return the identity for a start of a job."""
        source = job.settings.source
        return cls(source.name, job.event_schema, job.settings.engine, source.subfolders, source.unjudged)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "format": FORMAT,
            "source": self.source,
            "subfolders": self.subfolders,
            "event_schema": self.schema.model_dump(mode="json"),
            "shards": self.engine.shards,
            "allowed_lateness_ms": self.engine.allowed_lateness,
            "codec": CODEC_VERSION,
            "precision": self.engine.precision.descriptions(),
            "policies": self._policies(),
            "unjudged": list(self.unjudged),
        }

    def _policies(self) -> dict[str, str]:
        """Return the settings that decide how an event is treated, by their paths in the configuration."""
        precision = self.engine.precision
        policies: dict[str, str] = {
            "engine.late": self.engine.late,
            "engine.collision": self.engine.collision,
            "engine.duplicates": self.engine.duplicates.describe(),
            "engine.nulls": self.engine.nulls,
            _EDGE: precision.edge,
        }
        return policies | {f"{_EDGE} of group {group.name}": group.edge for group in precision.groups}

    def conflict(self, written: dict[str, Any], is_carried: bool = False) -> str | None:
        """Describe how the recorded identity conflicts with this one; None if the job can continue with its state.

        State that is carried into another checkpoint may change its shards and lateness, and may take fields from
        elsewhere or lose them.
        """
        now = self.to_json()
        for setting, name, shown in _OF_SOURCE if is_carried else (*_OF_STATE, *_OF_SOURCE):
            if written[name] != now[name]:
                return f"was made with {setting} {shown(written[name])}, not {shown(now[name])}"
        if not is_same_source(written["source"], self.source):
            return f"was made for source {written['source']}, not {now['source']}"
        schema = EventSchema.model_validate(written["event_schema"])
        return self._schema_conflict(schema) or (None if is_carried else self._layout_conflict(schema))

    def _schema_conflict(self, written: EventSchema) -> str | None:
        for name in self.schema.aliases:
            several = [spelling for spelling in self.schema.spellings(name) if spelling in written.field_names]
            if len(several) > 1:
                return f"was made with {' and '.join(several)} as different fields, and aliases make one of them"
        for first, name in written.new_names.items():
            other = first if first in self.schema.field_names else self.schema.new_names.get(first, name)
            if name in self.schema.field_names and other != name:
                return f"was made with {first} as a name of field {name} before, and now it is one of field {other}"
        written, now = written.renamed(self.schema.new_names), fixed_settings(self.schema)
        for name, before in fixed_settings(written).items():
            if before != now[name]:
                return f"was made with {name} {before}, not {now[name]}, in event schema {written.name!r}"
        roles = self.schema.roles
        for name, role in written.roles.items():
            if roles.get(name, role) != role:
                return f"was made with {name} as {role}, not as {roles[name]}"
        return None

    def _layout_conflict(self, written: EventSchema) -> str | None:
        written = written.renamed(self.schema.new_names)
        if written.records != self.schema.records:
            before, layout = (schema.records or "one object a line" for schema in (written, self.schema))
            return (
                f"was made with files of JSON that have {before}, not {layout}, which is `records` of the event schema"
            )
        for name, role in written.roles.items():
            if name not in self.schema.roles:
                return f"was made with {name} as {role}, which the event schema does not declare any more"
        for name in written.field_names:
            before, origin = (schema.beside_value.get(name, "the value") for schema in (written, self.schema))
            if before != origin:
                return f"was made with {name} from {before} of a message, not from {origin}"
        return None

    def carried_over(self, written: dict[str, Any]) -> str | None:
        """Describe changes that do not prevent the job from continuing; None if nothing."""
        changes = [
            *self.settings_changed(written),
            *self.schema_changes(EventSchema.model_validate(written["event_schema"])),
        ]
        return "; ".join(changes) or None

    def settings_changed(self, written: dict[str, Any]) -> Iterator[str]:
        """Describe each change of a setting that may change under a checkpoint."""
        before, now = written["precision"], self.engine.precision.descriptions()
        changes = "; ".join(
            f"{name}: {_until_now(before.get(name, 'as all groups'), now.get(name, 'as all groups'))}"
            for name in {**before, **now}
            if before.get(name) != now.get(name)
        )
        if changes:
            what_stays = "existing buckets stay as coarse as they are, and bounds allow for it"
            yield f"precision has changed ({changes}); {what_stays}"

        before, now = written["policies"], self._policies()
        for name in {**before, **now}:
            earlier, later = (policies.get(name, policies[_EDGE]) for policies in (before, now))
            if earlier != later:
                yield f"{name} has changed ({_until_now(earlier, later)})"
        unjudged = set(written["unjudged"])
        for topic in sorted(unjudged.symmetric_difference(self.unjudged)):
            yield f"topic {topic} is {'judged' if topic in unjudged else 'not judged'} from now on"

    def schema_changes(self, written: EventSchema) -> Iterator[str]:
        """Describe each change of the event schema that is allowed under a checkpoint."""
        renamed = [f"{name} is {new}" for name, new in self.schema.new_names.items() if name in written.field_names]
        if renamed:
            what_follows = "keys and ids of alerts of rules that group by such a field have its new name"
            yield f"{', '.join(renamed)} from now on; {what_follows}"
        written = written.renamed(self.schema.new_names)
        before, now = written.event_time, self.schema.event_time
        moved = {
            "earliest": (before.earliest_ms, before.earliest, now.earliest_ms, now.earliest),
            "latest": (before.latest_ms, before.latest, now.latest_ms, now.latest),
        }
        for name, (before_ms, earlier, now_ms, later) in moved.items():
            if before_ms != now_ms:
                change = _until_now(earlier.isoformat(), later.isoformat())
                yield f"event_time.{name} has changed ({change}); events that have been taken already stay"
        if written.csv != self.schema.csv:
            yield "csv has changed; files that have been read already stay as they were read"
        known = written.roles
        for name, measure in self.schema.measures.items():
            rounded = written.measures.get(name, measure).round
            if measure.round != rounded:
                yield f"measures.{name}.round has changed ({_until_now(rounded or 'none', measure.round or 'none')})"
        for name, role in self.schema.roles.items():
            if name not in known:
                yield f"the event schema has a field more, {name} as {role}"


def fixed_settings(schema: EventSchema) -> dict[str, str]:
    """Return the parts of an event schema that must not change, by their paths in the schema."""
    time = schema.event_time
    return {
        "event_id": schema.identity.text,
        "event_time.field": time.field,
        "event_time.unit": time.unit,
        "event_time.format": time.format or "none",
        "event_time.zone": time.zone or "UTC",
    }


def is_same_source(one: str, other: str) -> bool:
    """Return whether two source names mean one source, however their paths are written.

    Paths are compared the way Spark records files that it has taken: `..` is resolved, links are not.
    """
    kind, _, path = one.partition(" ")
    kind_of_other, _, path_of_other = other.partition(" ")
    if one == other or kind not in KINDS or KINDS[kind].needs != "path":
        return one == other
    return kind == kind_of_other and os.path.normpath(path) == os.path.normpath(path_of_other)


def check_release(written: Any) -> None:
    """Check that this release can read the record of what a checkpoint was made from.

    Raises:
        BucketsError: another release wrote it.
        ValueError: no release writes such a record.
    """
    if not isinstance(written, dict):
        message = "it is not an object"
        raise ValueError(message)
    _check_types(written, int, "format", "codec")
    for name, known in (("format", FORMAT), ("codec", CODEC_VERSION)):
        if written[name] != known:
            message = f"has {name} {written[name]}, and this release reads {name} {known}"
            raise BucketsError(message)
    _check_types(written, int, "shards", "allowed_lateness_ms")
    _check_types(written, str, "id", "source")
    EventSchema.model_validate(written.get("event_schema"))


def _check_types(written: dict[str, Any], kind: type, *names: str) -> None:
    for name in names:
        if not isinstance(written.get(name), kind):
            message = f"{name} is missing, or of another type"
            raise ValueError(message)


def _until_now(before: str, now: str) -> str:
    return f"{before} until now, {now} from now on"


class Terms(BaseModel):
    """What determines the results of a batch besides its rules.

    Attributes:
        event_schema: what an event is.
        engine: the settings that decide results.
        evaluations: whether there is a result for every event and rule, fired or not.
        features: whether features are put out as columns, for a DataFrame.
        output: the kind of output that results go to.
        arrival: the column that orders arrivals, if any.
        isolation: which messages of topics are read; None for other sources.
        unjudged: the topics whose events only fill timelines.
        protobuf: the schemas that decode Protobuf values and keys besides their own; None for other formats.
        key_format: how the keys of messages are written.
        avro_schema: the schema for Avro values without a registry prefix; None for other formats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_schema: EventSchema
    engine: EngineSettings
    evaluations: bool
    features: bool = False
    output: str
    arrival: str | None = None
    isolation: str | None = None
    avro_schema: str | None = None
    protobuf: PinnedProtobuf | None = None
    key_format: KeyFormat = "text"
    unjudged: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: "Job", protobuf: PinnedProtobuf | None) -> "Terms":
        """Return the terms for a job's batches that begin now; `protobuf` decodes Protobuf values and keys."""
        settings = job.settings
        return cls(
            event_schema=job.event_schema,
            engine=settings.engine,
            evaluations=settings.output.evaluations,
            output=settings.output.kind,
            arrival=settings.source.arrival,
            isolation=settings.kafka.isolation if settings.kafka and settings.source.has_topics else None,
            avro_schema=job.avro_schema,
            protobuf=protobuf,
            key_format=settings.source.key_format,
            unjudged=settings.source.unjudged,
        )

    def conflict(self, begun: "Terms") -> str | None:
        """Describe why a start with these terms cannot continue a batch of other terms; None if it can."""
        if begun.output != self.output:
            return f"was begun with output.kind {begun.output}, not {self.output}"
        if begun.arrival != self.arrival:
            before, now = (f"source.arrival {terms.arrival or 'left out'}" for terms in (begun, self))
            return f"was begun with {before}, not {now}"
        if None not in (begun.isolation, self.isolation) and begun.isolation != self.isolation:
            return f"was begun with kafka.isolation {begun.isolation}, not {self.isolation}"
        return None
