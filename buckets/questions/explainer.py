"""What explains the events of a job: its archive up to now, and what is recorded beside it."""

import threading

from buckets.archive.history import History
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, kept_results
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.maker import Explainer
from buckets.outputs.alert_ids import full_alert_id

_archiving = threading.Lock()
"""Held while the archive is extended: of several people who ask at once, one does it."""


def opened_history(job: Job) -> History:
    """Return the history of a job, up to now."""
    with _archiving:
        return History.open(job)


def explainer(history: History, most_events: int | None) -> Explainer:
    """Return what explains events of a history, with so many events of a window at most; None for all."""
    job = history.job
    past = Past.of(history.archive, history.recorded, kept_results(job), RuleVersions(job.checkpoint))
    return Explainer(past, most_events)


def explained_alert(history: History, alert_id: str, most_events: int | None) -> Explanation:
    """Explain an alert by its id, or by the beginning of it that no other alert has.

    Raises:
        BucketsError: there is no such alert, or several.
    """
    results = kept_results(history.job)
    whole_id = alert_id if results is None else full_alert_id(results, alert_id)
    return explainer(history, most_events).alert(whole_id)
