"""Finished batches, as the status of a job takes them."""

from buckets.engine.stages.accounting import BatchAccount, BatchFacts, GroupAccount
from buckets.monitor.pace import BatchReport

NOW_MS = 1_800_000_000_000
NO_FACTS = BatchFacts()


def batch(
    events: int = 10,
    written_ms: int = NOW_MS,
    ingested=(),
    alerts=(),
    batch_id: int = 0,
    held: int = 0,
    facts=NO_FACTS,
    duration_s: float = 0.1,
) -> BatchReport:
    counts = {
        "no_key": 0,
        "filtered": 1,
        "late": 2,
        "too_late": 0,
        "duplicates": 0,
        "collisions_not_kept": 0,
        "dead_letters": 0,
    }
    counts |= {"held_alerts": held}
    fired = sum(len(table) for table in alerts)
    group = GroupAccount("id", "payer", events_in=events, evaluated=events - 3, alerts=fired, **counts)
    account = BatchAccount(batch_id, 1, events, 0, None, (group,), tuple(ingested), facts=facts)
    return BatchReport(account, 0.8 * duration_s, 0.2 * duration_s, tuple(alerts), written_ms)
