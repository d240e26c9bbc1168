"""The page of a long question: how far it is, its answer, and the way to end it."""

from collections.abc import Iterator, Mapping
from typing import Any

from buckets.clock import epoch_ms
from buckets.config.job import Job
from buckets.console.pages.now import sweep_chart
from buckets.console.view import Asked, Onward, PageChange, View, address, part
from buckets.errors import BucketsError
from buckets.questions.long_questions import Question


def page(asked: Asked) -> View:
    """Show a question."""
    question = asked.site.questions.question(asked.named("id"))
    return View("question.html", {"question": question, **_values(question)})


def changes(asked: Asked) -> Iterator[list[PageChange]]:
    """Yield how far the question is, until it is over."""
    seen: Any = None
    while True:
        question = asked.site.questions.question(asked.named("id"))
        # As it is before the part is made, and not when the next change is asked for: the end is shown too.
        is_over, state, progress = question.is_over, question.state, dict(question.progress)
        values = _values(question)
        now = (state, progress, values["seconds"])
        yield [PageChange(part("question-state.html", **values))] if now != seen else []
        seen = now
        if is_over:
            yield [PageChange(event="over")]  # else the page would ask again and again
            return


def check_archived(job: Job) -> None:
    """See that there is an archive to ask questions of.

    Raises:
        BucketsError: the configuration has none.
    """
    if job.settings.archive is None:
        message = "the configuration has no `archive` of what has arrived; add one, and run `buckets archive`"
        raise BucketsError(message)


def ask(asked: Asked, title: str, subject: str, fields: Mapping[str, Any]) -> Onward:
    """Ask a question about the job, and go on to its page."""
    conf = str(asked.site.conf.resolve())
    question = asked.site.questions.ask(title, subject, asked.person.name, {"conf": conf, **fields})
    return Onward(address("/question", id=question.identity))


def cancel(asked: Asked) -> Onward:
    """End a question."""
    question = asked.site.questions.cancel(asked.given("id"))
    return Onward(address("/question", id=question.identity))


def _values(question: Question) -> dict[str, Any]:
    """Return what the changing part of the page shows."""
    ended_ms = question.ended_ms or epoch_ms()
    answer = question.answer() if question.state == "done" else None
    rows, of = question.progress.get("rows", 0), question.progress.get("of", 0)
    return {
        "question": question,
        "seconds": (ended_ms - question.asked_ms) // 1000,
        "rows": rows,
        "of": max(of, rows),
        "answer": answer,
        "kind": question.asked["kind"],
        "chart": sweep_chart(answer) if answer is not None and question.asked["kind"] == "backtest" else None,
    }
