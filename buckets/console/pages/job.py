"""Pages of the job: its current state, its batches, and long questions about its past."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from buckets.backfill.fill_chunks import read_fills
from buckets.clock import epoch_ms
from buckets.config.job import Job, kept_results
from buckets.console.view import Asked, Onward, PageChange, Site, View, address, part
from buckets.errors import BucketsError
from buckets.monitor.live import Live, read_live
from buckets.monitor.pace import as_columns
from buckets.monitor.words import FALLS_BEHIND, faults_of, pace_line, pace_state, state_line
from buckets.outputs.columns import ALERTS
from buckets.outputs.messages import crossed
from buckets.outputs.recorded_outputs import alerts_by_day
from buckets.questions.listed_alerts import (
    AlertFilter,
    given_findings,
    groups_of_batch,
    latest_batches,
    list_alerts,
    recorded_line,
    totals,
)
from buckets.questions.long_questions import Question, named_times

DAYS = 30  # Of charts of alerts a day
_LATEST, _BATCHES = 10, 50
_REPLAY = "replay"


def now(asked: Asked) -> View:
    """Show the current state of the job, or its last one."""
    live, folder = read_live(asked.site.job.checkpoint), kept_results(asked.site.job)
    counts = Counter[int]()
    for of_rule in {} if live is not None or folder is None else alerts_by_day(folder / ALERTS, DAYS).values():
        counts.update(of_rule)
    by_day = columns_by_day(counts)
    return View("now.html", is_followed=live is not None, by_day=by_day, **_figures(asked.site, live))


def columns_by_day(counts: Mapping[int, int]) -> dict[str, list[int]]:
    """Return alerts per day for a chart, including quiet days between; empty without any."""
    days = range(min(counts, default=0), max(counts, default=-1) + 1)
    return {"time_s": [day * 86_400 for day in days], "alerts": [counts.get(day, 0) for day in days]}


def samples(asked: Asked) -> dict[str, Any]:
    """Return the last hour for charts."""
    return as_columns(asked.site.sampler.since())


def now_changes(asked: Asked) -> Iterator[list[PageChange]]:
    """Yield the figures each time the job has written them, and the samples since.

    A page that was loaded before the job began is notified when it has, since it has no charts of it.
    """
    seen: tuple[int, str] | None = (-1, "")
    since_s = max((sample.time_s for sample in asked.site.sampler.since()), default=0)
    while True:
        live = read_live(asked.site.job.checkpoint)
        news: list[PageChange] = []
        if live is not None and asked.named("followed") == "no":
            news.append(PageChange(event="begun"))
        state = (live.data["written_ms"], live.state(epoch_ms())) if live is not None else None
        if state != seen:
            seen = state
            news.append(PageChange(part("now-live.html", **_figures(asked.site, live))))
        new = asked.site.sampler.since(since_s)
        if new:
            since_s = new[-1].time_s
            news.append(PageChange(event="samples", data=as_columns(new)))
        yield news


def _figures(site: Site, live: Live | None) -> dict[str, Any]:
    """Return the data of the page's changing part; for a job without a status, the recorded totals."""
    line = state_line(site.conf, site.job.checkpoint, live, epoch_ms())
    values = {"fills": [fill.words for fill in read_fills(site.job.checkpoint)], "faults": [], "remark": ""}
    if live is not None:
        data = live.data
        return values | {
            "faults": faults_of(site.conf, site.job.checkpoint, live, epoch_ms()),
            "remark": "" if pace_state(data) == FALLS_BEHIND else pace_line(data),
            "line": line,
            "data": data,
            "alerts": [alert | {"why": crossed(alert)} for alert in data["alerts"][:_LATEST]],
            "rules": data["rules"]["rules"],
            "rules_version": data["rules"]["version"],
        }
    folder, rule_set, alerts = kept_results(site.job), site.rule_set, []
    recorded = {} if folder is None else totals(folder)
    if recorded:
        alerts = list_alerts(site.results, AlertFilter(), None, given_findings(site.job), _LATEST).rows
    rules = [] if rule_set is None else [rule for rule in rule_set.rules if rule.state != "DELETE"]
    return values | {
        "faults": [] if recorded else [line],
        "line": recorded_line(recorded) if recorded else "",
        "data": None,
        "recorded": recorded,
        "alerts": [row | {"written_ms": row["event_time"]} for row in alerts],
        "rules": [{"rule_id": rule.rule_id, "state": rule.state, "sentence": rule.sentence()} for rule in rules],
        "rules_version": None if rule_set is None else rule_set.version,
    }


def batches(asked: Asked) -> View:
    """List batches with their accounts, the latest first; or the groups of one batch."""
    folder = kept_results(asked.site.job)
    before, number = _number(asked, "before"), _number(asked, "batch")
    rows = [] if folder is None else latest_batches(folder, _BATCHES, before)
    return View(
        "batches.html",
        rows=rows,
        groups=[] if folder is None or number is None or not rows else groups_of_batch(folder, number),
        batch=number,
        is_full=len(rows) == _BATCHES,
        is_archived=asked.site.job.settings.archive is not None,
        questions=asked.site.questions.about(_REPLAY),
    )


def replay(asked: Asked) -> Onward:
    """Queue a replay, which checks whether scoring all arrivals again reproduces the recorded results."""
    check_archived(asked.site.job)
    begin, end = asked.given("begin"), asked.given("end")
    named_times(begin, end)
    title = "Replay" + (f" from {begin}" if begin else "") + (f" to {end}" if end else "")
    return ask(asked, title, _REPLAY, {"kind": "replay", "begin": begin, "end": end})


def _number(asked: Asked, name: str) -> int | None:
    text = asked.named(name)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        message = f"{name}: {text!r} is not a number of a batch; take one of the list"
        raise BucketsError(message)
    return int(text) if text else None


def check_archived(job: Job) -> None:
    """Refuse questions about a job without an archive."""
    if job.settings.archive is None:
        message = "the configuration has no `archive` of what has arrived; add one, and run `buckets archive`"
        raise BucketsError(message)


def ask(asked: Asked, title: str, subject: str, fields: Mapping[str, Any]) -> Onward:
    """Queue a long question about the job, and go on to its page."""
    conf = str(asked.site.conf.resolve())
    question = asked.site.questions.ask(title, subject, asked.person.name, {"conf": conf, **fields})
    return Onward(address("/question", id=question.identity))


def question(asked: Asked) -> View:
    """Show the progress of a question, and its answer."""
    return View("question.html", **_question(asked.site.questions.question(asked.named("id"))))


def question_changes(asked: Asked) -> Iterator[list[PageChange]]:
    """Yield the progress of the question until it ends."""
    seen: Any = None
    while True:
        question = asked.site.questions.question(asked.named("id"))
        # Read before the part is rendered, so that the end is shown too.
        is_over, state, progress = question.is_over, question.state, dict(question.progress)
        values = _question(question)
        now = (state, progress, values["seconds"])
        yield [PageChange(part("question-state.html", **values))] if now != seen else []
        seen = now
        if is_over:
            yield [PageChange(event="over")]  # otherwise the page would reconnect for ever
            return


def cancel(asked: Asked) -> Onward:
    """End a question."""
    return Onward(address("/question", id=asked.site.questions.cancel(asked.given("id")).identity))


def _question(question: Question) -> dict[str, Any]:
    rows = question.progress.get("rows", 0)
    return {
        "question": question,
        "seconds": ((question.ended_ms or epoch_ms()) - question.asked_ms) // 1000,
        "rows": rows,
        "of": max(question.progress.get("of", 0), rows),
        "answer": question.answer() if question.state == "done" else None,
        "kind": question.asked["kind"],
    }
