"""The tool that says how good rules are, by what people have found about alerts."""

from typing import Any

from buckets.archive.archiving import archived_events
from buckets.mcp.answer import FromTime, Limit, Offset, ToolAnswer, ToTime
from buckets.questions.asked_job import AskedJob
from buckets.questions.long_questions import named_times
from buckets.verdicts.report import Thresholds, quality_report


class Share(ToolAnswer):
    """A share, as a number from 0 to 1."""

    share: float
    """That of the sample."""
    low: float
    """The lower end of the interval that holds the true share with 95 % confidence."""
    high: float
    """Its upper end."""


class QualityRow(ToolAnswer):
    """How good a rule is."""

    rule_id: str
    state: str | None
    """ACTIVE or SHADOW (on trial); null of a rule that is gone."""
    alerts: int
    """How many came out."""
    shadow_alerts: int
    """How many came out on trial; all that follows counts both."""
    held_alerts: int
    """How many a policy held back; they count nowhere else."""
    fraud: int
    """How many alerts were found to be fraud."""
    legitimate: int
    unclear: int
    precision: Share | None
    """The share of fraud among alerts found fraud or legitimate; null without any."""
    recall: Share | None
    """The share of all confirmed frauds at whose events the rule fired; null where none is confirmed."""
    caught: int
    """At how many events of confirmed fraud it fired."""
    missed: int
    """At how many it did not."""
    caught_alone: int
    """At how many of these no other rule in force did."""
    amount_caught: str
    """The sum of the amounts of what was caught, in the unit of the measure."""
    amount_missed: str
    """That of all other frauds."""
    time_to_detect_ms: float | None
    """The median time in ms from the first fraud of a key to an alert on it; null where none is detected."""
    time_to_decide_ms: float | None
    """The median time in ms from an event to when the alert on it was decided on; null where that is not known."""
    advice: str
    """keep, tune, retire, or not enough verdicts; a rule of thumb."""
    reason: str
    """Why."""


class QualityAnswer(ToolAnswer):
    """The quality of rules, by rule id."""

    measure: str | None
    """The field of amounts; null where events have none."""
    frauds: int
    """How many frauds are confirmed in the time that was asked for."""
    frauds_without_time: int
    """How many others are left out, because it is not known when they happened."""
    frauds_without_amount: int
    """Of how many frauds the amount is not known."""
    rules: list[QualityRow]
    count: int
    """How many rules there are in all."""
    has_more: bool
    """Whether there are more after these."""


class QualityTools:
    """Says how good rules are."""

    def __init__(self, asked: AskedJob) -> None:
        """Say it of those of a job."""
        self._asked = asked

    def quality(
        self, from_time: FromTime = "", to_time: ToTime = "", limit: Limit = 50, offset: Offset = 0
    ) -> QualityAnswer:
        """Say how good each rule is by the verdicts on its alerts, as `buckets rules quality CONF --json` does."""
        job, times = self._asked.job, named_times(from_time, to_time)
        found = quality_report(job, Thresholds(), times, find_events=archived_events(job)).as_json()
        rules = found["rules"]
        return QualityAnswer.model_validate(
            found
            | {
                "rules": list(map(_row, rules[offset : offset + limit])),
                "count": len(rules),
                "has_more": offset + limit < len(rules),
            }
        )


def _row(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule with units in the names of its times."""
    return rule | {f"{name}_ms": rule[name] for name in ("time_to_detect", "time_to_decide")}
