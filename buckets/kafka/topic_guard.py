"""Sees that topics are still those that a checkpoint has read, and lets it go on with others if somebody says so.

Whoever reads asks once what it has read is there and nothing of it is written yet: an id never comes back, so what was
read until then came from the topic that has the id.
"""

from collections.abc import Collection
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from buckets.checkpoint.topic_generations import Offsets, TopicGenerations
from buckets.config.kafka import KafkaSettings
from buckets.kafka.faults import ANSWER_WITHIN_S, Broker, consumer_settings, read_offsets


class TopicGuard:
    """The topics of a query, compared with those that its checkpoint knows."""

    def __init__(self, kafka: KafkaSettings, checkpoint: Path, topics: Collection[str]) -> None:
        """Guard topics; nothing is asked yet.

        Args:
            kafka: how Kafka is reached.
            checkpoint: of the query.
            topics: those that it reads.
        """
        self.generations = TopicGenerations(checkpoint)
        self._kafka, self._topics = kafka, topics
        self._broker = Broker(kafka)

    def check(self) -> None:
        """See that the topics are those that were read until now. Cost: a question to a broker, about 1 ms.

        Raises:
            BucketsError: one was created again (`NewTopic`), or is gone.
            Outage: no broker answers.
        """
        self.generations.check(self._ids())

    def adopt(self) -> None:
        """Remember the topics that the checkpoint does not know yet; raises as `check`."""
        self.generations.adopt(self._ids())

    def renewed(self) -> dict[str, str]:
        """Return the topics that were created again, each with its id now; raises as `check`, but for those."""
        ids = self._ids()
        return {topic: ids[topic] for topic in self.generations.renewed(ids)}

    def ids(self) -> dict[str, str]:
        """Return the id of each topic that is read, by topic; those whose id is not known are left out."""
        known = {topic: self.generations.of(topic) for topic in self._topics}
        return {topic: generations[-1].topic_id for topic, generations in known.items() if generations}

    def beginning(self, topic: str) -> Offsets:
        """Return the first offset of each partition of a topic as it is now; raises as `check`, but for new topics."""
        partitions = self._broker.check_topics([topic])[topic]
        consumer = Consumer({**consumer_settings(self._kafka), "group.id": "buckets-beginning"})
        try:
            pairs = [TopicPartition(topic, number) for number in range(partitions)]
            return {pair.partition: read_offsets(self._kafka, consumer, pair)[0] for pair in pairs}
        finally:
            consumer.close()

    def _ids(self) -> dict[str, str]:
        return self._broker.topic_ids(self._topics, ANSWER_WITHIN_S)
