"""Statuses of jobs and audits, as their threads make them, without a job."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from buckets.engine.stages.accounting import BatchFacts, ShardMemory
from buckets.monitor.live import LiveStatus
from buckets.monitor.pace import BatchReport
from buckets.monitor.query_news import AuditStatus, QueryNews
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS
from buckets.rules.rule_set import first_rule_set
from tests.core.done_batches import NOW_MS, batch
from tests.core.examples import rule

RULES = first_rule_set([rule("one"), rule("two", state="SHADOW")])
FACTS = BatchFacts(
    rules={ALERTS: {"one": 3}, HELD_ALERTS: {"one": 2}, SHADOW_ALERTS: {"two": 1}},
    dead_letters={"amount": 2, "unreadable": 1},
    skipped={"deleted": 4},
    rounded={"amount": 5},
    new_keys={"payer": 4},
    evicted_keys={"payer": 1},
    shards={0: ShardMemory(100, 10), 3: ShardMemory(50, 5)},
    partitions={"payer": [(7, 0), (8, 1), (7, 1)]},
)
FILL = {"rule_ids": ["one"], "group": "payer", "events": 10, "of": 40, "chunk": 1, "chunks": 4, "waiting": 0}
NEWS = QueryNews(
    behind={("t", "0"): 7, ("t", "1"): 0},
    state={"memory_bytes": 1000, "disk_bytes": 2000},
    phases_s={"addBatch": 0.12},
    fills=[FILL],
    schema={"name": "payment", "version": 3, "fault": None},
    webhook={"delivered": 5, "failed_attempts": 2, "undelivered": 1, "waiting": 3},
    topics_appeared=2,
)
BATCH = batch(10, facts=FACTS, ingested=[(NOW_MS - 80, 6), (NOW_MS - 2_000, 4)])


def job_status(
    checkpoint: Path, *batches: BatchReport, news: QueryNews = NEWS, fault: str | None = None
) -> dict[str, Any]:
    """The status of a job that runs, after some batches."""
    with LiveStatus(checkpoint, lambda: RULES, lambda: news, lambda: fault, every_s=3600) as live:
        for each in batches:
            live.on_batch(each)
        live.on_refused(2)
        live.on_outage()
    return live.latest | {"ended_ms": None, "lag": news.lag}


def audit_status() -> dict[str, Any]:
    """The status of an audit, after a batch."""
    audit = AuditStatus()
    audit.on_batch(4, SimpleNamespace(messages={"alerts": 3}, repeats=1, unreadable=0), 0.2)
    audit.on_outage()
    return audit.latest
