"""How far a query lags behind its topics, by what Spark reports of it."""

import json
from typing import Any


def messages_behind(progress: dict[str, Any]) -> int | None:
    """Return how many messages a query has not yet taken in; None where Spark does not say."""
    behind = None
    for source in progress.get("sources", ()):
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is None or end is None:
            continue
        ahead = (offset - end.get(partition, 0) for partition, offset in latest.items())
        behind = (behind or 0) + sum(max(messages, 0) for messages in ahead)
    return behind


def _offsets(reported: Any) -> dict[tuple[str, str], int] | None:
    """Return offsets by topic and partition; None where these are no offsets of topics."""
    written = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(written, dict):
        return None
    parts = {topic: offsets for topic, offsets in written.items() if isinstance(offsets, dict)}
    return {(topic, name): int(at) for topic, offsets in parts.items() for name, at in offsets.items()} or None
