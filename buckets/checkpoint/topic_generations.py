"""Which topics a checkpoint reads, and how far. A topic that was created again is a new *generation* of its name.

    CHECKPOINT/buckets/topics.json  by topic, the ids of its generations

Offsets begin anew with each generation, so an offset means nothing without the id of its topic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from buckets.checkpoint.record_files import RecordFiles, reader_of
from buckets.errors import BucketsError


class TopicPosition(NamedTuple):
    """A place in a topic."""

    offset: int  # after the last message that was read
    topic_id: str = ""  # Kafka's id of the topic, new after each creation; empty if unknown


def is_another(known: str, now: str) -> bool:
    """Return whether a topic's id has changed; an empty id is unknown and matches any."""
    return bool(known and now) and known != now


Offsets = Mapping[int, int]  # By partition, an offset


class NewTopic(BucketsError):
    """A topic that is not the one that the checkpoint has read under its name."""


@dataclass(frozen=True)
class TopicGeneration:
    """A topic during the life of one id."""

    topic_id: str  # Kafka's id of it
    # whether the topic was deleted, and a query that finds topics by a pattern continues without it
    is_gone: bool = False


_read_topics = reader_of(dict[str, tuple[TopicGeneration, ...]])


class TopicGenerations:
    """The generations of the topics of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._records = RecordFiles(checkpoint)
        self._file = self._records.folder / "topics.json"

    @property
    def by_topic(self) -> dict[str, tuple[TopicGeneration, ...]]:
        """The generations of all topics with a known id, including deleted topics, oldest first."""
        return self._records.read_if_there(self._file, lambda record: _read_topics(record["topics"])) or {}

    def of(self, topic: str) -> tuple[TopicGeneration, ...]:
        """Return the generations of a topic, oldest first; empty if it was never read."""
        return self.by_topic.get(topic, ())

    @property
    def live(self) -> list[str]:
        """The topics that are read, if an id is known."""
        return _live(self.by_topic)

    def renewed(self, ids: Mapping[str, str]) -> list[str]:
        """Return the topics whose id differs from that of their last generation; brokers may know no ids."""
        known = self.by_topic
        live = _live(known)
        return [topic for topic, now in ids.items() if topic in live and is_another(known[topic][-1].topic_id, now)]

    def numbers(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number, from 1, of the generation of each topic to read next, including deleted topics."""
        known = self.by_topic
        every = dict.fromkeys([*topics, *known])
        return {topic: max(1, len(of) + of[-1].is_gone) if (of := known.get(topic)) else 1 for topic in every}

    def check(self, ids: Mapping[str, str]) -> None:
        """Check that topics with these current ids are those read so far.

        Raises:
            NewTopic: one was created again.
        """
        for topic in self.renewed(ids):
            message = (
                f"topic {topic} was deleted and created again: checkpoint {self._checkpoint} has read the one with id "
                f"{self.of(topic)[-1].topic_id}, and this one has id {ids[topic]}; start once with --new-topic to keep "
                "what there is and read the new topic from its beginning, or name a new checkpoint"
            )
            raise NewTopic(message)

    def adopt(self, ids: Mapping[str, str]) -> None:
        """Record the ids of topics without a known one, as in a new checkpoint.

        A topic that was gone and has come back is a new generation, read from its beginning.
        """
        known = self.by_topic
        live = _live(known)
        generations = {topic: TopicGeneration(now) for topic, now in ids.items() if topic not in live}
        new = {topic: (*known.get(topic, ()), each) for topic, each in generations.items() if each.topic_id}
        if new:
            self._write(known | new)

    def let_go(self, topic: str) -> None:
        """Record that a topic is gone and no longer read."""
        known = self.by_topic
        *earlier, last = known[topic]
        self._write(known | {topic: (*earlier, replace(last, is_gone=True))})

    def add(self, topic: str, generation: TopicGeneration) -> None:
        """Begin a new generation of a topic."""
        known = self.by_topic
        self._write(known | {topic: (*known[topic], generation)})

    def _write(self, known: dict[str, tuple[TopicGeneration, ...]]) -> None:
        self._records.write(self._file, {"topics": known}, indent=1)


def _live(known: Mapping[str, tuple[TopicGeneration, ...]]) -> list[str]:
    return [topic for topic, generations in known.items() if not generations[-1].is_gone]


def generation_name(topic: str, number: int) -> str:
    """Return the name of a generation, from 1, for the source column, since generations have unrelated positions."""
    return topic if number == 1 else f"{topic}#{number}"
