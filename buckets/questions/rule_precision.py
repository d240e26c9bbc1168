"""How often rules are right, by the alerts that people have judged; of all alerts only these are read."""

from buckets.config.job import Job, kept_results
from buckets.delta.query import is_in
from buckets.outputs.recorded_outputs import Selection
from buckets.outputs.rule_alerts import has_alerts
from buckets.verdicts.confirmed import job_verdicts
from buckets.verdicts.findings import findings
from buckets.verdicts.quality import quality
from buckets.verdicts.recorded_alerts import recorded_alerts
from buckets.verdicts.share_interval import ShareInterval


def precisions(job: Job) -> dict[str, ShareInterval]:
    """Return the share of fraud among the judged alerts of each rule that has some, as `buckets rules quality` does."""
    folder = kept_results(job)
    if folder is None or not has_alerts(folder):
        return {}
    given = findings(job_verdicts(job))
    if not given.by_event and not given.by_alert:
        return {}
    tests = f"({is_in('alert_id', given.by_alert.keys())} or {is_in('event_id', given.by_event.keys())})"
    rules = quality(recorded_alerts(folder, selection=Selection(tests=[tests])), given, {}, {})
    return {rule.rule_id: rule.fraud_of_judged for rule in rules if rule.fraud_of_judged is not None}
