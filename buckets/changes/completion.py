"""Since when the rules of an origin are complete, or why that cannot be said of them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from buckets.backfill.fill_chunks import FillStatus, read_fills
from buckets.checkpoint.driver_state import Checkpoint, read_warmth
from buckets.clock import epoch_ms
from buckets.config.job import Job
from buckets.rules.change import RuleChange
from buckets.rules.release import same_definition
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.warmth import Warmth, rules_warmth


@dataclass(frozen=True)
class Completion:
    """What is known of a rule."""

    words: str  # since when it is complete, or when it will be, in a few words
    # the same as times; None where the job does not evaluate the rule as it stands in its origin
    warmth: Warmth | None = None
    fills: tuple[FillStatus, ...] = ()  # how far its history is filled in from the archive, where that is asked for

    @property
    def is_complete(self) -> bool:
        """Whether the windows of the rule are complete now."""
        return self.warmth is not None and self.warmth.current is not None


def read_completions(job: Job, rules: Iterable[Rule]) -> dict[str, Completion]:
    """Read what the checkpoint of a job says of rules, by their ids."""
    rule_set = Checkpoint(job.checkpoint).versions.latest_rule_set()
    in_force = {} if rule_set is None else {rule.rule_id: rule for rule in rule_set.rules}
    warmth, fills = read_warmth(job.checkpoint), read_fills(job.checkpoint)
    completions = {}
    for rule in rules:
        completion = _completion(job, rule, in_force.get(rule.rule_id), warmth)
        own_fills = tuple(fill for fill in fills if rule.rule_id in fill.rule_ids)
        words = "; ".join((completion.words, *(fill.words for fill in own_fills)))
        completions[rule.rule_id] = replace(completion, words=words, fills=own_fills)
    return completions


def expected_completion(job: Job, rule: Rule) -> Completion:
    """Say since when a rule will be complete if the next batch evaluates it as it is."""
    kept = Checkpoint(job.checkpoint)
    rule_set = kept.versions.latest_rule_set()
    if rule_set is None:
        return Completion("complete from the first event on, as the job has seen none yet")
    arrived, lateness_ms = kept.batches.arrived(), job.settings.engine.allowed_lateness
    put = RuleChange(change="put", rule=rule)
    revision = revise(rule_set, [put], job.event_schema, arrived, lateness_ms, kept.versions.gone_rules())
    warmth = rules_warmth(revision.rule_set, arrived, epoch_ms()).get(rule.rule_id)
    return Completion("not known") if warmth is None else Completion(warmth.sentence(), warmth)


def _completion(job: Job, rule: Rule, there: Rule | None, warmth: dict[str, Warmth]) -> Completion:
    if rule.state == "DRAFT":
        return Completion("not in force, keeps nothing")
    if there is None or there.state == "DRAFT":
        return Completion("not in force yet")
    if not same_definition(there, rule, job.event_schema):
        return Completion(f"not in force yet as it is here: the job has version {there.version}")
    # A job that runs may have made a version between the two readings.
    of_rule = warmth.get(rule.rule_id)
    return Completion("not in force yet") if of_rule is None else Completion(of_rule.sentence(), of_rule)
