"""How far a topic of one partition has been read, and which topic it was."""

from typing import Any, NamedTuple


class TopicPosition(NamedTuple):
    """A place in a topic.

    Attributes:
        offset: after the last message that was read.
        topic_id: Kafka's id of the topic: one that was created again has another. Empty where it is not known.
    """

    offset: int
    topic_id: str = ""

    @classmethod
    def read(cls, written: Any) -> "TopicPosition | None":
        """A position as it is written: as a list, or as an offset alone by an earlier release."""
        if written is None:
            return None
        return cls(written) if isinstance(written, int) else cls(*written)


def is_another(known: str, now: str) -> bool:
    """Whether two ids are those of two topics; one that is not known may be either's.

    Args:
        known: the id of the topic that was read; empty where it is not known.
        now: that of the topic which has its name now; empty where brokers know no ids.
    """
    return bool(known and now) and known != now
