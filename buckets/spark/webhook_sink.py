"""The alerts of a batch for a webhook, beside where its results go."""

from dataclasses import dataclass

from buckets.clock import epoch_ms
from buckets.outputs.columns import ALERTS
from buckets.outputs.messages import Messages
from buckets.spark.scored_batch import ScoredBatch, Sink
from buckets.webhook.delivery import Delivery


@dataclass(frozen=True)
class WebhookSink:
    """Writes results where they go, and hands the alerts to what delivers them."""

    results: Sink  # where results go
    delivery: Delivery  # what delivers alerts

    def write(self, batch: ScoredBatch) -> None:
        """Write what a batch produced; its alerts are in the checkpoint when this returns, delivered or not."""
        self.results.write(batch)
        if not batch.has(ALERTS):
            return
        decided_ms = epoch_ms()
        alerts = Messages(batch.rule_set, batch.terms.event_schema).of(ALERTS, batch.table(ALERTS), decided_ms)
        self.delivery.put(batch.account.batch_id, decided_ms, alerts)
