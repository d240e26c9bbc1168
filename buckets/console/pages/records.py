"""Pages of what is recorded beside alerts: verdicts, the quality of rules, and batches with their accounts."""

from typing import Any

from buckets.archive.archiving import archived_events
from buckets.config.job import kept_results
from buckets.console.pages.now import interval
from buckets.console.pages.question import ask, check_archived
from buckets.console.view import Asked, Onward, View
from buckets.duration import spoken_duration
from buckets.errors import BucketsError
from buckets.questions.listed_alerts import groups_of_batch, latest_batches
from buckets.questions.long_questions import named_times
from buckets.verdicts.confirmed import job_verdicts
from buckets.verdicts.quality import Thresholds, quality_report

_VERDICTS, _BATCHES = 200, 50
_REPLAY = "replay"


def verdicts(asked: Asked) -> View:
    """List what was found about alerts, the latest first; the latest verdict on an alert counts."""
    by_age = sorted(job_verdicts(asked.site.job), key=lambda verdict: verdict.age, reverse=True)
    counting = {verdict.subject: verdict for verdict in reversed(by_age)}
    rows = [{"verdict": each, "counts": counting[each.subject] is each} for each in by_age[:_VERDICTS]]
    return View("verdicts.html", {"rows": rows, "all": len(by_age)})


def quality(asked: Asked) -> View:
    """Show the quality of rules, which is computed when the page is there."""
    assert asked.site.results
    return View("quality-page.html")


def quality_table(asked: Asked) -> View:
    """Compute the quality of rules, as a part of its page."""
    job = asked.site.job
    report = quality_report(job, Thresholds(), find_events=archived_events(job))
    rows = [
        {
            "rule": rule,
            "advice": advice,
            "precision": interval(rule.fraud_of_judged),
            "recall": interval(rule.caught_of_confirmed),
            "detected": "" if rule.detect_ms is None else spoken_duration(rule.detect_ms),
        }
        for rule, advice in report.rules
    ]
    return View("quality-table.html", {"rows": rows, "report": report})


def batches(asked: Asked) -> View:
    """List batches with their accounts, the latest first; or the groups of one."""
    folder = kept_results(asked.site.job)
    before, number = _number(asked, "before"), _number(asked, "batch")
    rows: list[dict[str, Any]] = [] if folder is None else latest_batches(folder, _BATCHES, before)
    groups = [] if folder is None or number is None or not rows else groups_of_batch(folder, number)
    return View(
        "batches.html",
        {
            "rows": rows,
            "groups": groups,
            "batch": number,
            "is_full": len(rows) == _BATCHES,
            "is_archived": asked.site.job.settings.archive is not None,
            "questions": asked.site.questions.about(_REPLAY),
        },
    )


def replay(asked: Asked) -> Onward:
    """Ask whether all that is recorded comes out again when what has arrived is scored once more."""
    check_archived(asked.site.job)
    begin, end = asked.given("begin"), asked.given("end")
    named_times(begin, end)
    title = "Replay" + (f" from {begin}" if begin else "") + (f" to {end}" if end else "")
    return ask(asked, title, _REPLAY, {"kind": "replay", "begin": begin, "end": end})


def _number(asked: Asked, name: str) -> int | None:
    text = asked.named(name)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        message = f"{name}: {text!r} is no number of a batch; take one of the list"
        raise BucketsError(message)
    return int(text) if text else None
