"""How far a query lags behind its topics, by what Spark reports of it."""

import json
from typing import Any

Partition = tuple[str, str]
"""A topic, and the number of a partition as text."""


def partitions_behind(progress: dict[str, Any]) -> dict[Partition, int] | None:
    """Return how many messages of each partition a query has not yet taken in; None where Spark does not say."""
    behind: dict[Partition, int] | None = None
    for source in progress.get("sources", ()):
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is None or end is None:
            continue
        behind = {} if behind is None else behind
        for partition, offset in latest.items():
            behind[partition] = behind.get(partition, 0) + max(offset - end.get(partition, 0), 0)
    return behind


def _offsets(reported: Any) -> dict[Partition, int] | None:
    """Return offsets by topic and partition; None where these are no offsets of topics."""
    written = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(written, dict):
        return None
    parts = {topic: offsets for topic, offsets in written.items() if isinstance(offsets, dict)}
    return {(topic, name): int(at) for topic, offsets in parts.items() for name, at in offsets.items()} or None
