"""Checks that topics are still those that a checkpoint has read, and lets it continue with new ones on request.

A topic id is never reused: everything read before asking for a topic's id came from the topic with that id. Topics that
a pattern finds later are recorded before their first messages are read.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.checkpoint.topic_generations import NewTopic, Offsets, TopicGenerations
from buckets.config.kafka import KafkaSettings
from buckets.config.source import TopicSelection
from buckets.errors import BucketsError
from buckets.kafka.faults import ANSWER_WITHIN_S, Broker


class TopicGuard:
    """The topics of a query, compared with those in its checkpoint; also raises as `Broker`.

    Attributes:
        appeared: how many topics matching the pattern have appeared since the start.
        follows_pattern: whether there is a pattern, so that topics may appear.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        checkpoint: Path,
        topics: TopicSelection,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Guard the topics of a query; `say` receives a line when one appears that matches the pattern."""
        self.generations = TopicGenerations(checkpoint)
        self.appeared = 0
        self.follows_pattern = topics.pattern is not None
        self._kafka, self._checkpoint, self._topics, self._say = kafka, checkpoint, topics, say
        self._without_id: set[str] = set()
        self._broker = Broker(kafka)

    @property
    def topics(self) -> list[str]:
        """The topics that are read: the named ones, and those found by the pattern so far."""
        return self._topics.of(self.generations.live)

    def check(self) -> None:
        """Refuse topics that were created again (`NewTopic`) or are gone. Cost: one broker request, about 1 ms."""
        self._refuse(self.gone())
        self.generations.check(self._ids_of(self.topics))

    def find(self) -> list[str]:
        """Return the existing topics that match the pattern, at least one; empty without a pattern."""
        if self._topics.pattern is None:
            return []
        found = sorted(filter(self._topics.matches, self._broker.partitions()))
        if not found:
            message = (
                f"kafka {self._kafka.bootstrap_servers}: there is no topic that source.topic_pattern "
                f"{self._topics.pattern!r} matches; create one, or correct the pattern"
            )
            raise BucketsError(message)
        return found

    def start(self) -> None:
        """Record the topics that the checkpoint does not know yet.

        Once a batch has ended, topics found by the pattern are new, and are recorded by the batch that reads them
        first.
        """
        found = self.find() if SourceOffsets(self._checkpoint).ended is None else []
        self.generations.adopt(self._ids_of({*self._topics.names, *found}))

    def begin_batch(self, batch_id: int) -> list[str]:
        """Record the topics in a planned batch that the pattern has found since the last one, and return them."""
        if not self.follows_pattern:
            return []
        read = SourceOffsets(self._checkpoint).end(batch_id)
        new = sorted(set(read).difference(self.topics, self._without_id))
        self._refuse(self.lost(new) if new else [])
        ids = self._ids_of(new)
        self.generations.adopt(ids)
        self._without_id.update(topic for topic in new if not ids[topic])
        self.appeared += len(new)
        for topic in new:
            self._say(f"topic {topic} has appeared, and is read from its beginning from batch {batch_id} on")
        return new

    def renewed(self) -> dict[str, str]:
        """Return the recreated topics with their present ids; raises as `check` for other faults."""
        ids = self._ids_of(set(self.topics).difference(self.gone()))
        return {topic: ids[topic] for topic in self.generations.renewed(ids)}

    def gone(self) -> list[str]:
        """Return the topics found by the pattern that no longer exist."""
        return self._gone_of(self.topics)

    def lost(self, planned: Iterable[str]) -> list[str]:
        """Return a planned batch's topics that no longer exist and of which nothing has been read."""
        return self._gone_of(set(planned).difference(self.topics))

    def _gone_of(self, topics: Iterable[str]) -> list[str]:
        if not self.follows_pattern:
            return []
        there = self._broker.partitions()
        return [topic for topic in topics if topic not in there and topic not in self._topics.names]

    def ids(self) -> dict[str, str]:
        """Return the id of each topic that is read, without unknown ids."""
        known = {topic: self.generations.of(topic) for topic in self.topics}
        return {topic: generations[-1].topic_id for topic, generations in known.items() if generations}

    def beginning(self, topic: str) -> Offsets:
        """Return the current first offset of each partition of a topic; raises as `check`, but for new topics."""
        found = self._broker.offsets(topic, self._broker.check_topics([topic])[topic])
        return {number: first for number, (first, _) in enumerate(found)}

    def _refuse(self, gone: Sequence[str]) -> None:
        if gone:
            message = (
                f"kafka {self._kafka.bootstrap_servers}: topic {gone[0]}, which source.topic_pattern has found, is not "
                "there any more; start once with --new-topic to go on without it, and to read it from its beginning "
                "should it come again, or name a new checkpoint"
            )
            raise NewTopic(message)

    def _ids_of(self, topics: Iterable[str]) -> dict[str, str]:
        asked = list(topics)
        return self._broker.topic_ids(asked, ANSWER_WITHIN_S) if asked else {}
