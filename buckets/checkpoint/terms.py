"""The terms of a batch: all that decides its results beside its rules and its events.

They are written when a batch begins (`BatchRecords.terms_for`) and travel to its tasks with the rules. A batch that is
run again therefore gives what it has half written already, whatever the configuration says by then.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator

from buckets.config.engine import EngineSettings
from buckets.config.job import Job
from buckets.config.source import KeyFormat
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.schema import EventSchema


class Terms(BaseModel):
    """What decides the results of a batch beside its rules.

    Attributes:
        event_schema: what an event is.
        engine: the settings that decide results.
        evaluations: whether there is a result for every event and rule, fired or not.
        output: the kind of output that results go to.
        arrival: the column that orders the arrivals, where there is one.
        isolation: which messages of topics are read; None of other sources, and in terms of earlier releases.
        unjudged: the topics whose events only fill timelines.
        protobuf: by what values and keys in Protobuf are read, beside their own schemas; None of all others.
        key_format: how the keys of messages are written.
        avro_schema: what values in Avro without the prefix of a registry are read by; None of all others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_schema: EventSchema
    engine: EngineSettings
    evaluations: bool
    output: str
    arrival: str | None = None
    isolation: str | None = None
    avro_schema: str | None = None
    protobuf: PinnedProtobuf | None = None
    key_format: KeyFormat = "text"
    unjudged: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: Job, protobuf: PinnedProtobuf | None) -> "Terms":
        """Return the terms of batches of a job that begin now.

        Args:
            job: the job.
            protobuf: by what values and keys in Protobuf are read; None of all others.
        """
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
            key_format=job.key_format,
            unjudged=settings.source.unjudged,
        )

    @model_validator(mode="before")
    @classmethod
    def _strict_before(cls, written: Any) -> Any:
        """Take terms of earlier releases as strict: they did not write what is done with nulls."""
        engine = written.get("engine") if isinstance(written, dict) else None
        return written | {"engine": {"nulls": "strict"} | engine} if isinstance(engine, dict) else written

    @model_serializer(mode="wrap")
    def _without_what_is_usual(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without keys that are text, and topics to fill from if there are none: earlier releases know neither."""
        usual = {name for name in ("key_format", "unjudged") if getattr(self, name) == Terms.model_fields[name].default}
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name not in usual}

    def conflict(self, begun: "Terms") -> str | None:
        """Return why a start with these terms cannot go on with a batch of other terms, as text; None where it can."""
        if begun.output != self.output:
            return f"was begun with output.kind {begun.output}, not {self.output}"
        if begun.arrival != self.arrival:
            before, now = (f"source.arrival {terms.arrival or 'left out'}" for terms in (begun, self))
            return f"was begun with {before}, not {now}"
        if None not in (begun.isolation, self.isolation) and begun.isolation != self.isolation:
            return f"was begun with kafka.isolation {begun.isolation}, not {self.isolation}"
        return None
