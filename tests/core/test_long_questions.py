"""Long questions: one whose process cannot start ends with a line, and those behind it are answered."""

import resource
import shutil
import sys
import time

import pytest

from buckets.questions.long_questions import Questions

WITHIN_S = 60
LATER = {"conf": "nowhere.yaml", "kind": "replay", "begin": None, "end": None}
"""A question whose process starts, and says at once that there is no such configuration."""


@pytest.fixture
def questions():
    asked = Questions()
    yield asked
    asked.close()


def ended(question):
    given_up_s = time.monotonic() + WITHIN_S
    while not question.is_over:
        assert time.monotonic() < given_up_s
        time.sleep(0.01)
    return question


def without_a_python(questions, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")


def without_its_folder(questions, monkeypatch):
    shutil.rmtree(questions._folder)


def without_descriptors(questions, monkeypatch):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # those of the standard streams, which stay open


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        (without_a_python, "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/python'"),
        (without_its_folder, "FileNotFoundError: [Errno 2] No such file or directory"),
        (without_descriptors, "OSError: [Errno 24] Too many open files"),
    ],
)
def test_a_question_that_cannot_start_ends_with_a_line_and_later_ones_are_answered(
    questions, monkeypatch, lacking, why
):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with monkeypatch.context() as lacks:
        lacking(questions, lacks)
        first = ended(questions.ask("What it would raise", "rule", "ann", LATER))
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert first.state == "failed"
    assert first.error.startswith(f"its process cannot be started ({why}")
    assert "\n" not in first.error
    assert first.ended_ms is not None
    questions._folder.mkdir(exist_ok=True)
    later = ended(questions.ask("What it would raise", "rule", "ann", LATER))
    assert (later.state, questions.states()) == ("failed", {"failed": 2})
    assert "nowhere.yaml" in later.error


def test_a_question_that_cannot_be_written_down_ends_with_a_line(questions):
    question = ended(questions.ask("What it would raise", "rule", "ann", LATER | {"begin": object()}))
    assert question.error.startswith("its process cannot be started (TypeError: ")
    assert questions.cancel(question.identity).state == "failed"
