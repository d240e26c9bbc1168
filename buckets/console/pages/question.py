"""The page of a long question: how far it is, its answer, and the way to end it."""

from collections.abc import Iterator
from typing import Any

from buckets.clock import epoch_ms
from buckets.console.pages.drawings import sweep_chart
from buckets.console.stream import PageChange
from buckets.console.view import Asked, Onward, View, address, part
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
        values = _values(question)
        now = (question.state, dict(question.progress), values["seconds"])
        yield [PageChange(part("question-state.html", **values))] if now != seen else []
        seen = now
        if question.is_over:
            return


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
        "chart": None if answer is None else sweep_chart(answer),
    }
