"""The end of a batch, after its shards: rules whose parts meet, rules over alerts, and the accounts."""

from collections.abc import Iterable
from dataclasses import replace

from buckets.engine.stages.accounting import BatchAccount, account_batch
from buckets.engine.stages.alert_stage import alert_outputs
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.shard import COUNTS, Produced, Scorer, cross_group_outputs
from buckets.engine.storage.shard_store import DriverStores
from buckets.outputs.columns import ALERTS
from buckets.rules.rule_set import RuleSet


def complete_batch(
    batch_id: int,
    produced: Iterable[Produced],
    scorer: Scorer,
    rule_set: RuleSet,
    stores: DriverStores,
    is_thinned: bool = False,
) -> tuple[list[Produced], BatchAccount]:
    """Complete a batch.

    Args:
        batch_id: the batch.
        produced: what the shards put out; of it counts, parts and, if there are rules over alerts, alerts are read.
        scorer: the settings.
        rule_set: the rules of the batch.
        stores: what is kept outside the shards.
        is_thinned: whether of the parts only those are left that `fired_parts` keeps, which has put out the evaluations
            of their rules.

    Returns:
        What is put out besides, and what became of each event.
    """
    read: dict[str, list[bytes]] = {COUNTS: [], PARTS: [], ALERTS: []}
    if not rule_set.alert_groups:
        del read[ALERTS]

    def note(several: Iterable[Produced]) -> list[Produced]:
        noted = list(several)
        for one in noted:
            if one.output in read:
                read[one.output].append(bytes(one.payload))
        return noted

    note(produced)
    meeting = replace(scorer, evaluations=scorer.evaluations and not is_thinned)
    besides = note(cross_group_outputs(meeting, read[PARTS], rule_set, stores.cross_group))
    besides += note(alert_outputs(scorer, read.get(ALERTS, []), rule_set, stores))
    return besides, account_batch(batch_id, rule_set, read[COUNTS])
