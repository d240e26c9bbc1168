"""What a rule on trial has raised so far, before it is released."""

from buckets.config.job import Job, kept_results
from buckets.delta.query import is_table
from buckets.moment import time_text
from buckets.outputs.columns import SHADOW_ALERTS
from buckets.outputs.rule_alerts import count_alerts
from buckets.printable import counted
from buckets.rules.rule import Rule


def trial_words(job: Job, rule: Rule) -> str:
    """Say how often a rule on trial has alerted, where its alerts are in a table."""
    folder = kept_results(job)
    table = None if folder is None else folder / SHADOW_ALERTS
    if table is None or not is_table(table):
        return "not known, there is no table of its alerts" + ("; `buckets audit` writes one" if table is None else "")
    trial = count_alerts(table, rule.rule_id)
    if trial.first_ms is None or trial.last_ms is None:
        return f"no alerts in {table}"
    times = f"{time_text(trial.first_ms)} to {time_text(trial.last_ms)} UTC"
    return f"{counted(trial.alerts, 'alert')} of {counted(trial.keys, 'key')}, for events of {times}"
