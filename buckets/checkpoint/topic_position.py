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
        """Read a position: a list, or an offset alone of an earlier release."""
        if written is None:
            return None
        return cls(written) if isinstance(written, int) else cls(*written)


def is_another(known: str, now: str) -> bool:
    """Return whether a topic has another id now than it had; an empty id is not known, and may be either's."""
    return bool(known and now) and known != now
