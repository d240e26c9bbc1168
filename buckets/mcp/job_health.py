"""The tool that says what a job is doing, or has done last, and what is wrong with it."""

from typing import Any, Literal

from buckets.backfill.fill_chunks import read_fills
from buckets.checkpoint.driver_state import Checkpoint
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.mcp.answer import Limit, ToolAnswer, time_text
from buckets.monitor.live import Live, read_live
from buckets.monitor.words import faults_of, schema_news, state_line
from buckets.questions.asked_job import AskedJob
from buckets.questions.listed_alerts import latest_batches, recorded_line, totals


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
