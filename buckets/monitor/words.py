"""The status of a job in words: whether it runs, what is wrong with it and what to do, and how late results are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from buckets.clock import epoch_ms
from buckets.duration import DAY_MS, spoken_duration
from buckets.moment import day_text, time_text
from buckets.monitor.live import Live

Status = dict[str, Any]
FALLS_BEHIND, CATCHES_UP, SLOW = "falls behind", "catches up", "slow"
_WAITS = 0.5
"""A job that is at work for less of the time waits for its trigger, and not for its work."""


def never_ran(conf: Path, checkpoint: Path) -> str:
    """Say that there is no status."""
    return (
        f"job {conf}: has never run, there is no status in its checkpoint {checkpoint}; "
        f"start it with `buckets run {conf}`"
    )


def state_line(conf: Path, checkpoint: Path, live: Live | None, now_ms: int) -> str:
    """Return whether the job runs, in one line, and what to do if it does not."""
    if live is None:
        return never_ran(conf, checkpoint)
    data, state = live.data, live.state(now_ms)
    process = f"process {data['pid']} on {data['host']}"
    written = f"{clock_text(data['written_ms'])} UTC"
    if state == "running":
        return f"job {conf}: runs, {process}, since {clock_text(data['started_ms'])} UTC"
    if state == "silent":
        return f"job {conf}: has said nothing since {written}; {process} hangs, or its machine is gone"
    remedy = f"start it again with `buckets run {conf}`"
    if state == "gone":
        return f"job {conf}: is not running, {process} died after {written}; {remedy}"
    if data["failure"]:
        return f"job {conf}: is not running, it failed at {written}: {data['failure']}"
    return f"job {conf}: is not running, it was stopped at {written}; {remedy}"


def remarks_on(data: Status) -> list[str]:
    """Return what is wrong with a job that still runs, a line each."""
    remarks: list[str] = []
    if data["rules_fault"] and data["ended_ms"] is None:
        remarks.append(f"the rules may be out of date: {data['rules_fault']}")
    schema_fault = schema_news(data).get("fault")
    if schema_fault and data["ended_ms"] is None:
        remarks.append(f"the event schema stays as it is: {schema_fault}")
    if data["fault"] or data["not_counted"]:
        why = data["fault"] or "they came faster than they could be counted"
        left_out = "1 batch is" if data["not_counted"] == 1 else f"{data['not_counted']:,} batches are"
        remarks.append(f"these figures are not complete, {left_out} not in them: {why}")
    remarks += data.get("shortages", [])
    return remarks


def schema_news(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a job says of its event schema, as `QueryNews.schema`; empty of a status that says nothing of it."""
    news: Mapping[str, Any] = data.get("query", {}).get("schema", {})
    return news


def faults_of(conf: Path, checkpoint: Path, live: Live, now_ms: int) -> list[str]:
    """Return what is wrong with a job, a line each: that it has failed, what it says itself, and that it falls behind.

    Of a job that keeps up and is slow nothing is wrong; `pace_line` says it.
    """
    failed = [state_line(conf, checkpoint, live, now_ms)] if live.has_failed(now_ms) else []
    behind = [pace_line(live.data)] if pace_state(live.data) == FALLS_BEHIND else []
    return failed + remarks_on(live.data) + behind


def pace_state(data: Mapping[str, Any]) -> str:
    """Return how a job keeps up, as `Pace.state`; `unknown` also of one that has ended."""
    pace = data.get("pace")
    return "unknown" if pace is None or data["ended_ms"] is not None else str(pace["state"])


def pace_line(data: Mapping[str, Any]) -> str:
    """Say that a job falls behind, catches up or is slow though it keeps up, with what to do; empty for none of it."""
    state = pace_state(data)
    if state not in (FALLS_BEHIND, CATCHES_UP, SLOW):
        return ""
    pace = data["pace"]
    late = "late" if pace["delay_ms"] is None else f"{spoken_duration(pace['delay_ms'])} late"
    if state == CATCHES_UP:
        return f"the job catches up: results are still {late}, and less so with each batch; wait"
    if state == FALLS_BEHIND:
        come = pace["come_per_s"]
        come_words = "more come" if come is None else f"about {come:,.0f} come"
        rate = "RATE" if come is None else f"{come:.0f}"
        return (
            f"the job falls behind: {pace['done_per_s']:,.0f} events/s are done and {come_words}; results are {late}, "
            f"and more so with each batch; give it more cores (`buckets size CONF --rate {rate}` says how many), a "
            "machine that is less busy, or fewer events"
        )
    if pace["busy"] < _WAITS:
        why = f"it is at work for {pace['busy']:.0%} of the time, and then waits: shorten trigger.interval"
    else:
        why = f"a batch takes {pace['batch_ms']:,} ms: a machine that is less busy, or fewer shards and partitions help"
    return f"the job keeps up, but is slow: results are {late}, and no more so with each batch; {why}"


def quantiles_text(times_ms: dict[str, int] | None) -> str:
    """Return quantiles of times in one line; nothing where there are none."""
    return ", ".join(f"{name} {time_ms:,} ms" for name, time_ms in (times_ms or {}).items())


def clock_text(time_ms: int) -> str:
    """Return a time of day, with its date unless that is today."""
    return time_text(time_ms).removeprefix(f"{day_text(epoch_ms() // DAY_MS)} ")
