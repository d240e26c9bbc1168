"""Long questions, such as a backtest: one runs at a time, the others wait; each can be cancelled.

Each question is answered in a separate process, at low priority, which ends with its parent.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from buckets.clock import epoch_ms
from buckets.errors import BucketsError, kind_and_line
from buckets.moment import TimeRange, parse_moment_ms

State = Literal["waiting", "running", "done", "failed", "cancelled"]
_NICENESS = 10
_KEPT = 20
_LONGEST_SAID = 1_000


@dataclass
class Question:
    """A question, and the progress of its answer."""

    identity: str  # of it
    title: str  # what is asked, for people
    subject: str  # what it is about, such as a rule
    author: str  # who has asked
    asked: Mapping[str, Any]  # what the process is given
    folder: Path  # where its files are
    state: State = "waiting"  # how far it is
    progress: dict[str, int] = field(default_factory=dict)  # its own progress report
    error: str = ""  # why it failed, in one line
    asked_ms: int = field(default_factory=epoch_ms)  # when it was asked
    ended_ms: int | None = None  # when it ended

    @property
    def is_over(self) -> bool:
        """Whether the question has ended."""
        return self.state in ("done", "failed", "cancelled")

    def answer(self) -> dict[str, Any]:
        """Return the answer."""
        found: dict[str, Any] = json.loads((self.folder / "answer.json").read_text(encoding="utf-8"))
        return found


class Questions:
    """Answers questions one after the other, each in a process of low priority."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="buckets-questions-"))
        self._questions: dict[str, Question] = {}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "questions")

    def ask(self, title: str, subject: str, author: str, asked: Mapping[str, Any]) -> Question:
        """Queue a question behind the earlier ones."""
        identity = uuid.uuid4().hex
        question = Question(identity, title, subject, author, asked, self._folder / identity)
        with self._lock:
            self._questions[identity] = question
            over = [each for each in self._questions.values() if each.is_over]
            for old in over[: max(len(self._questions) - _KEPT, 0)]:
                del self._questions[old.identity]
                shutil.rmtree(old.folder, ignore_errors=True)
        self._pool.submit(self._answer, question)
        return question

    def question(self, identity: str) -> Question:
        """Return a question."""
        found = self._questions.get(identity)
        if found is None:
            message = "this question is not known any more; ask it again"
            raise BucketsError(message)
        return found

    def states(self) -> dict[str, int]:
        """Return the number of questions in each state."""
        return Counter(question.state for question in tuple(self._questions.values()))

    def about(self, subject: str) -> list[Question]:
        """Return the questions on a subject, newest first."""
        return [each for each in reversed(tuple(self._questions.values())) if each.subject == subject]

    def cancel(self, identity: str) -> Question:
        """End a question, waiting or running."""
        question = self.question(identity)
        with self._lock:
            if not question.is_over:
                was_running, question.state = question.state == "running", "cancelled"
                question.ended_ms = epoch_ms()
                if was_running and self._process is not None:
                    _end(self._process)
        return question

    def close(self) -> None:
        """End the running question, and forget all."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            if self._process is not None:
                _end(self._process)
        self._pool.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, question: Question) -> None:
        """Answer a question, unless it was cancelled while it waited."""
        with self._lock:
            if question.is_over:
                return
            try:
                process = self._process = _start(question)
            except Exception as fault:  # this question ends with it, but not the later ones
                question.state, question.ended_ms = "failed", epoch_ms()
                question.error = f"its process cannot be started ({kind_and_line(fault)}); ask again"
                return
            question.state = "running"
        error = ""
        with process:
            for line in process.stdout or ():
                said = _said(line)
                question.progress |= said.get("progress", {})
                error = said.get("error", error)
        code = process.returncode
        with self._lock:
            self._process = None
            if question.state == "running":
                question.state = "done" if code == 0 else "failed"
                question.error = "" if code == 0 else error or f"its process ended with {code}; ask again"
                question.ended_ms = epoch_ms()


def _start(question: Question) -> "subprocess.Popen[str]":
    question.folder.mkdir()
    (question.folder / "asked.json").write_text(json.dumps(dict(question.asked)), encoding="utf-8")
    with (question.folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "buckets.questions.key_events", str(question.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    with contextlib.suppress(OSError):  # without permission, the priority stays
        os.setpriority(os.PRIO_PGRP, process.pid, _NICENESS)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _said(line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {"error": line.strip()[:_LONGEST_SAID]}
    return said if isinstance(said, dict) else {}


def named_moment_ms(name: str, text: str) -> int | None:
    """Parse the time in a named field; None if the field is empty."""
    try:
        return parse_moment_ms(text) if text else None
    except ValueError as error:
        message = f"{name}: {error}"
        raise BucketsError(message) from None


def named_times(begin: str, end: str) -> TimeRange:
    """Return the range of event times between the fields `from` and `to`, either of which may be empty."""
    return TimeRange(named_moment_ms("from", begin), named_moment_ms("to", end))
