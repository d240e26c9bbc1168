"""Where events come from: a class for each kind of source, which says what can be done with it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, model_validator

from buckets.config.environment import Settings
from buckets.config.kafka import TopicName
from buckets.events.schema import KeyFormat
from buckets.events.source_files import FileFormat
from buckets.stores.location import location

_READ_ALIKE = re.compile(
    r"""(?: [A-Za-z0-9._^$|*+?)!=<:,-]        # names, alternatives, repetition, and what follows a group's `(?`
          | \\[.dDwW-]
          | \((?!\?) | \(\?(?:[:=!]|<[=!])
          | \{\d+(?:,\d*)?\}
          | \[\^?(?:[A-Za-z0-9._*+?|()$,-]|\\[.dDwW-])+\]
        )*""",
    re.VERBOSE,
)
_OF_KAFKA = "__"  # How names of Kafka's own topics begin, which no expression matches


def check_pattern(text: str) -> str:
    """Return a regular expression that Java and Python read alike; ValueError says why another one is not."""
    if not text or not _READ_ALIKE.fullmatch(text):
        message = (
            rf"{text!r} is more than names of topics need: write it with letters, digits, `. _ - * + ? | ^ $`, groups, "
            r"classes in `[ ]`, counts in `{ }`, `\d`, `\w` and `\.`, as in 'payments-.*'"
        )
        raise ValueError(message)
    try:
        re.compile(text)
    except re.error as error:
        message = f"{text!r} is not a regular expression: {error}; correct it, as in 'payments-.*'"
        raise ValueError(message) from None
    return text


@dataclass(frozen=True)
class TopicSelection:
    """Topics that a query reads."""

    names: tuple[str, ...] = ()  # those that are named
    pattern: str | None = None  # a regular expression of the whole name of others; None for none

    @cached_property
    def expression(self) -> str:
        """The regular expression of all topics, for the whole name."""
        named = [re.escape(name) for name in self.names]
        by_pattern = [] if self.pattern is None else [f"(?!{_OF_KAFKA})(?:{self.pattern})"]
        return f"^(?:{'|'.join([*named, *by_pattern])})$"

    def matches(self, topic: str) -> bool:
        """Return whether the pattern matches a topic."""
        if self.pattern is None or topic.startswith(_OF_KAFKA):
            return False
        return re.fullmatch(self.pattern, topic) is not None

    def of(self, topics: Iterable[str]) -> list[str]:
        """Return the named topics and those of some others that the pattern matches, by name."""
        return sorted({*self.names, *filter(self.matches, topics)})


_WITH_SCHEMAS = ("avro", "protobuf")  # Formats whose values cannot be read without a schema
PartOfMessage = Literal["value", "key"]
_OF_PATHS = frozenset({"path", "arrival", "out_of_order", "subfolders", "max_files_per_trigger"})


class SourceTopic(Settings):
    """One of several topics; a name alone stands for a topic whose events are evaluated.

    Attributes:
        name: the topic.
        judge: whether rules are evaluated at its events. `false`: they only fill timelines, as the history of another
            channel does.
    """

    name: TopicName
    judge: bool = True

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class SourceSettings(Settings):
    """Where transactions come from; it is read as the class of its kind.

    The fields of all kinds stand here, so that a field of another kind is named as such.

    Attributes:
        needs: the field that says where the events are, which a kind cannot do without.
        is_ordered: whether events have an order across micro-batches, which is then checked.
        kind: JSON lines, CSV with a header line, Parquet, a Delta table, or a Kafka topic.
        path: a folder (or a Delta table), also in an object store; new files are picked up as they appear.
        topic: the topic.
        topics: several topics as one source, in place of `topic`.
        topic_pattern: a regular expression of whole names of topics, in place of `topic` or beside `topics`: all topics
            that it matches are one source, also those that are created later.
        starting_offsets: where a new checkpoint begins in the topics that exist; topics that are created later are read
            from their beginning.
        max_offsets_per_trigger: how many messages one micro-batch takes at most.
        format: how the values of a topic are written: `json`, `json_sr` (JSON behind the prefix of a schema
            registry), `avro` or `protobuf`.
        key_format: how the keys of messages are written, where fields lie in them: as `text`, or as `format` has it;
            schemas of keys in Avro and Protobuf are those of a registry.
        envelope: what is around the event in a value: `debezium`; left out: nothing.
        decimals: how to read text in a measure in Debezium's JSON without a schema: `string` means digits, as its
            `decimal.handling.mode=string` writes them. Left out, a text that could also be bytes in base64, such as
            `1234`, is a dead letter.
        schema_file: the schema of values without the prefix of a registry: in Avro (`.avsc`), or for Protobuf a
            `.proto` file that needs no other one, or a set of descriptors as `protoc` writes it.
        message: the message type of values in a schema file of Protobuf; may be left out if the file has only one.
        arrival: column whose order is the arrival order; without it, files are taken by modification time and
            rows as they stand. A Delta table needs one.
        out_of_order: what is done if, by that column, a row of a micro-batch comes before rows of an earlier one:
            `refuse` ends the job before anything of the batch is written, `take` takes the row as it comes.
        subfolders: whether files in folders below `path` are read too.
        max_files_per_trigger: how many files one micro-batch takes at most.
    """

    needs: ClassVar[str] = "path"
    is_ordered: ClassVar[bool] = True

    kind: Literal["json", "csv", "parquet", "delta", "kafka"]
    path: str = ""
    arrival: str | None = None
    out_of_order: Literal["refuse", "take"] = "refuse"
    subfolders: bool = False
    max_files_per_trigger: int = Field(default=1000, ge=1)
    topic: TopicName | None = None
    topics: tuple[SourceTopic, ...] = ()
    topic_pattern: Annotated[str, AfterValidator(check_pattern)] | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: int = Field(default=200_000, ge=1)
    format: Literal["json", "json_sr", "avro", "protobuf"] = "json"
    key_format: KeyFormat = "text"
    schema_file: str | None = None
    message: str | None = None
    envelope: Literal["debezium"] | None = None
    decimals: Literal["string"] | None = None

    @property
    def name(self) -> str:
        """The kind and location of the source, and how it is written, which a checkpoint remembers."""
        written = "" if self.format == "json" else f" in {self.format}"
        around = "" if self.envelope is None else f" as {self.envelope}"
        return f"{self.kind} {', '.join(self._topics_in_words) or self.path}{written}{around}"

    @property
    def has_topics(self) -> bool:
        """Whether events come from topics."""
        return bool(self._topics_in_words)

    @property
    def all_topics(self) -> tuple[str, ...]:
        """The topics that are named, in the order of their names; none of other sources."""
        return tuple(sorted(topic.name for topic in self.topics)) if self.topic is None else (self.topic,)

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The topics whose events only fill timelines, in the order of their names."""
        return tuple(sorted(topic.name for topic in self.topics if not topic.judge))

    @property
    def selection(self) -> TopicSelection:
        """Which topics are read."""
        return TopicSelection(self.all_topics, self.topic_pattern)

    @property
    def _topics_in_words(self) -> list[str]:
        return [*self.all_topics, *([] if self.topic_pattern is None else [f"topics like {self.topic_pattern}"])]

    @property
    def registered(self) -> dict[PartOfMessage, str]:
        """The formats of values and of keys whose schemas are asked of a registry."""
        formats: dict[PartOfMessage, str] = {"value": self.format} if self.schema_file is None else {}
        formats["key"] = self.key_format
        return {part: written_in for part, written_in in formats.items() if written_in in _WITH_SCHEMAS}

    @property
    def place(self) -> str:
        """Where the events are, in words."""
        named, topics = len(self.all_topics), ", ".join(self._topics_in_words)
        return f"topic{'s' if named > 1 else ''} {topics}" if named else topics or self.path

    @property
    def folder(self) -> Path | None:
        """The folder whose files are read, or the one file; None for sources that are not read file by file."""
        return None

    def _own_faults(self) -> Iterator[str]:
        """Yield what a kind finds wrong with fields that it has."""
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _as_its_kind(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Any:
        name = value.get("kind") if isinstance(value, dict) else None
        kind = KINDS.get(name) if isinstance(name, str) else None
        return read(value) if kind in (None, cls) else kind.model_validate(value)

    def _faults(self) -> Iterator[str]:
        if not (self.path if self.needs == "path" else self.has_topics):
            yield f"a source of kind {self.kind} needs `{self.needs}`"
        of_topics = SourceSettings.model_fields.keys() - _OF_PATHS - {"kind"}
        for name in sorted(self.model_fields_set & (of_topics if self.needs == "path" else _OF_PATHS)):
            yield f"{name}: a source of kind {self.kind} has no such field"
        yield from self._own_faults()
        if self.arrival is None and "out_of_order" in self.model_fields_set:
            yield "out_of_order: goes with `arrival`, the column that has the order; leave it out"


class FileSource(SourceSettings):
    """A folder of files.

    Attributes:
        file_format: how a file is read.
    """

    file_format: ClassVar[FileFormat]

    @property
    def folder(self) -> Path:
        """The folder, or the one file; also in an object store."""
        return location(self.path)


class TextSource(FileSource):
    """Files of lines, which are read in their order."""

    def _own_faults(self) -> Iterator[str]:
        if self.arrival is not None:
            yield f"arrival: {self.kind} files are taken in the order of their lines; leave it out"


class JsonSource(TextSource):
    """Files of JSON lines."""

    file_format = "json"


class CsvSource(TextSource):
    """Files of CSV, each with a header line."""

    file_format = "csv"


class ParquetSource(FileSource):
    """Parquet files."""

    file_format = "parquet"


class DeltaSource(SourceSettings):
    """A Delta table."""

    def _own_faults(self) -> Iterator[str]:
        if self.subfolders:
            yield "subfolders: a Delta table knows its files; leave it out"
        if self.arrival is None:
            yield "a Delta table has no order of its own: name the column that has it, as `arrival: COLUMN`"


class KafkaSource(SourceSettings):
    """A topic, or several; their partitions have no order among them."""

    needs = "topic"
    is_ordered = False

    def _own_faults(self) -> Iterator[str]:
        if self.topic is not None and self.topics:
            yield "topics: goes without `topic`; leave one of them out"
        if self.topic is not None and self.topic_pattern is not None:
            yield "topic_pattern: goes without `topic`; leave one of them out, or name the topic under `topics`"
        for name, next_name in pairwise(self.all_topics):
            if name == next_name:
                yield f"topics: {name!r} is there twice"
        if self.unjudged and len(self.unjudged) == len(self.topics) and self.topic_pattern is None:
            yield "topics: none of them is judged, so no rule would be evaluated; leave out `judge: false` of one"
        if self.decimals is not None and (self.envelope != "debezium" or self.format in _WITH_SCHEMAS):
            yield "decimals: goes with `envelope: debezium` and values in JSON; leave it out"
        if self.schema_file is not None and self.format not in _WITH_SCHEMAS:
            yield f"schema_file: goes with `format: avro` or `format: protobuf`, not with {self.format}"
        if self.message is not None and (self.format != "protobuf" or self.schema_file is None):
            yield "message: goes with `format: protobuf` and a schema_file; behind a prefix each value names its own"


KINDS: Mapping[str, type[SourceSettings]] = {
    "json": JsonSource,
    "csv": CsvSource,
    "parquet": ParquetSource,
    "delta": DeltaSource,
    "kafka": KafkaSource,
}
