"""Since when the rules of a job are complete, by what its checkpoint says."""

from pathlib import Path

from buckets.checkpoint.checkpoint import Checkpoint
from buckets.clock import epoch_ms
from buckets.rules.warmth import Warmth, rules_warmth


def read_warmth(checkpoint: Path) -> dict[str, Warmth]:
    """Since when each rule in force is complete, by its id; empty where no batch has begun.

    Args:
        checkpoint: the folder that the configuration names as `checkpoint`; nothing is taken from a job that runs.
    """
    kept = Checkpoint(checkpoint)
    rule_set = kept.versions.latest_rule_set()
    return {} if rule_set is None else rules_warmth(rule_set, kept.batches.arrived(), epoch_ms())
