"""The tool that says what a job is doing, or has done last, and what is wrong with it.

The tool that says how good rules are, by what people have found about alerts.
"""

from typing import Any, Literal

from buckets.archive.archiving import archived_events
from buckets.backfill.fill_chunks import read_fills
from buckets.checkpoint.driver_state import Checkpoint
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.mcp.answer import FromTime, Limit, Offset, ToolAnswer, ToTime, time_text
from buckets.monitor.live import Live, read_live
from buckets.monitor.words import faults_of, schema_news, state_line
from buckets.questions.listed_alerts import AskedJob, latest_batches, recorded_line, totals
from buckets.questions.long_questions import named_times
from buckets.verdicts.quality import Thresholds, quality_report


class LiveFigures(ToolAnswer):
    """What the job said of itself last; of its last minute where nothing else is said."""

    written_at: str | None
    """When it said so, in ISO 8601 and UTC."""
    events_per_s: float
    alerts: int
    batches: int
    delay_p50_ms: int | None
    """Half of the results came no later than so many ms after their events; null where that is not known."""
    delay_p99_ms: int | None
    batch_p50_ms: int | None
    """Half of the batches took no longer than so many ms."""
    batch_max_ms: int | None
    lag_messages: int | None
    """How many messages of the source wait; null where that is not known."""
    events_since_start: int
    alerts_since_start: int
    dead_letters_since_start: int
    """Rows that were no valid events."""


class RecordedTotals(ToolAnswer):
    """What is recorded of all batches; late events are counted in every group of rules."""

    batches: int
    last: int
    """The number of the last batch."""
    events: int
    alerts: int
    held_alerts: int
    late: int
    too_late: int
    """Events that came later than the allowed lateness, and are not evaluated."""
    collisions_not_kept: int
    dead_letters: int
    """Rows that were no valid events."""


class BatchRow(ToolAnswer):
    """A batch that is recorded; all but events is summed over the groups of rules."""

    batch_id: int
    ruleset_version: int
    events: int
    latest_event_time: str | None
    """In ISO 8601 and UTC."""
    alerts: int
    held_alerts: int
    late: int
    too_late: int


class ListFault(ToolAnswer):
    """A list that cannot be read."""

    name: str
    fault: str


class HealthAnswer(ToolAnswer):
    """What a job is doing."""

    state: Literal["running", "silent", "gone", "stopped", "no status"]
    """silent: not heard of for ten seconds; gone: died without a word; no status: none is kept of any run."""
    line: str
    """The same in one line, with what to do."""
    faults: list[str]
    """What is wrong, each with what to do; empty for nothing."""
    list_faults: list[ListFault]
    rules_version: int | None
    """The newest version of all rules that the job has; null where it has none yet."""
    rules_in_force: int
    schema_version: int | None
    """The version of the event schema that the next batch has; null where the job has not said it."""
    now: LiveFigures | None
    """null where the job has said nothing of itself."""
    recorded: RecordedTotals | None
    """null where no tables of batches are kept, or nothing is recorded yet."""
    batches: list[BatchRow]
    """The latest batches that are recorded, newest first."""
    has_more: bool
    """Whether there are older batches."""
    backfills: list[str]
    """How far the history of rules is filled in, a line each."""


class HealthTools:
    """Says what a job is doing."""

    def __init__(self, asked: AskedJob) -> None:
        """Look at a job; nothing is taken from it."""
        self._asked = asked

    def job_health(self, limit: Limit = 5) -> HealthAnswer:
        """Say whether the job runs, its rate, delay and lag, what is wrong with it, and its latest batches."""
        asked, now_ms = self._asked, epoch_ms()
        checkpoint = asked.job.checkpoint
        live, folder, rule_set = read_live(checkpoint), kept_results(asked.job), asked.rule_set
        recorded = {} if folder is None else totals(folder)
        line = state_line(asked.conf, checkpoint, live, now_ms)
        batches = [] if folder is None else latest_batches(folder, limit + 1)
        return HealthAnswer(
            state="no status" if live is None else live.state(now_ms),
            line=recorded_line(recorded) if live is None and recorded else line,
            faults=[] if live is None else faults_of(asked.conf, checkpoint, live, now_ms),
            list_faults=[
                ListFault(name=name, fault=fault) for name, fault in Checkpoint(checkpoint).lists.faults().items()
            ],
            rules_version=None if rule_set is None else rule_set.version,
            rules_in_force=len(asked.rules_in_force),
            schema_version=None if live is None else schema_news(live.data).get("version"),
            now=None if live is None else _figures(live),
            recorded=RecordedTotals.model_validate(recorded) if recorded else None,
            batches=list(map(_batch, batches[:limit])),
            has_more=len(batches) > limit,
            backfills=[fill.words for fill in read_fills(checkpoint)],
        )


def _figures(live: Live) -> LiveFigures:
    data = live.data
    minute, total = data["minute"], data["totals"]
    delay, batch = minute["latency_ms"] or {}, minute["batch_ms"] or {}
    return LiveFigures(
        written_at=time_text(data["written_ms"]),
        events_per_s=minute["events_per_s"],
        alerts=minute["alerts"],
        batches=minute["batches"],
        delay_p50_ms=delay.get("p50"),
        delay_p99_ms=delay.get("p99"),
        batch_p50_ms=batch.get("p50"),
        batch_max_ms=batch.get("max"),
        lag_messages=data["lag"],
        events_since_start=total["events"],
        alerts_since_start=total["alerts"],
        dead_letters_since_start=total["malformed"],
    )


def _batch(row: dict[str, Any]) -> BatchRow:
    return BatchRow.model_validate(row | {"latest_event_time": time_text(row["latest"])})


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
