"""The status of a job in words: whether it runs, what is wrong with it and what to do, and how late results are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from buckets.clock import epoch_ms
from buckets.duration import DAY_MS
from buckets.moment import day_text, time_text
from buckets.monitor.live import Live

Status = dict[str, Any]


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
    """Return what is wrong with a job, a line each: that it has failed, what it says itself, and that it lags."""
    failed = [state_line(conf, checkpoint, live, now_ms)] if live.has_failed(now_ms) else []
    return failed + remarks_on(live.data) + _lag_remarks(live.data)


def _lag_remarks(data: Status) -> list[str]:
    """Say that a job does not keep up, where it is more than a minute of its events behind."""
    lag, rate = data["lag"], data["minute"]["events_per_s"]
    if lag is None or not rate or lag < 60 * rate:
        return []
    return [
        f"the job is {lag:,} messages behind, more than a minute at its {rate:,.0f} events/s; if that grows, give it "
        "more cores or larger batches, see what `buckets watch` says of batch lengths"
    ]


def quantiles_text(times_ms: dict[str, int] | None) -> str:
    """Return quantiles of times in one line; nothing where there are none."""
    return ", ".join(f"{name} {time_ms:,} ms" for name, time_ms in (times_ms or {}).items())


def clock_text(time_ms: int) -> str:
    """Return a time of day, with its date unless that is today."""
    return time_text(time_ms).removeprefix(f"{day_text(epoch_ms() // DAY_MS)} ")
