"""The words of errors and of what commands say: they lie in messages.json, and tests compare what is said with it.

A test asserts the kind of an error, and with the fixture `as_worded` that its words are the ones that are kept:

    with pytest.raises(BucketsError, check=as_worded):
    assert as_worded(ran.err)

`pytest --write-messages` keeps what is said now. A fixture of our own, since libraries for snapshots keep a file for
each file of tests, and here all words are in one file, a line a message, where a reviewer sees each that has changed.
"""

import fcntl
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pydantic import ValidationError

from buckets.validation import faults_of

ROOT: Final = Path(__file__).parents[1]
VARYING: Final = (
    (r"\bprocess \d+", "process PID"),
    (r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-c000", "-ID-c000"),
    (r"/\S+/logs/[0-9a-f]{8}\b|\bthe log of (?:spark-submit|Spark)\b", "LOGS"),
    (r"\blimit of [\d,]+ open files\b", "limit of N open files"),
    (r"\b([a-z_]+)-[0-9a-f]{8}\b", r"\1-ID"),
    (r"\b(127\.0\.0\.1:|localhost:|port )\d{5}\b", r"\1PORT"),
)
"""What is another in each run, and what is kept in its place."""
UNKNOWN: Final = "messages.json has no such message of this test; --write-messages writes it"
OTHER: Final = "this test says something else than in messages.json; --write-messages writes it"
AsWorded = Callable[[BaseException | str], bool]
Kept = dict[str, dict[str, str | list[str]]]
"""By file and test: what was said, a list where it was more than one thing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Keep other words."""
    parser.addoption("--write-messages", action="store_true", help="keep what is said now in tests/messages.json")


@pytest.fixture
def as_worded(request: pytest.FixtureRequest, kept_messages: Kept, tmp_path_factory) -> Iterator[AsWorded]:
    """Compares an error or a text with what is kept for this test, in order; what is said again at once is one."""
    file, test = request.node.nodeid.split("::", 1)
    kept = kept_messages.get(file, {}).get(test, [])
    expected = [kept] if isinstance(kept, str) else kept
    is_written = request.config.getoption("--write-messages")
    said: list[str] = []

    def compare(message: BaseException | str) -> bool:
        text = _stable(message, tmp_path_factory.getbasetemp())
        if said[-1:] == [text]:
            return True
        if not is_written:
            assert len(said) < len(expected), f"{UNKNOWN}: {text}"
            assert text == expected[len(said)], OTHER
        said.append(text)
        return True

    failed = request.session.testsfailed
    yield compare
    if request.session.testsfailed == failed:
        assert is_written or said == expected, OTHER
        if is_written and said:
            kept_messages.setdefault(file, {})[test] = said[0] if len(said) == 1 else said


@pytest.fixture(scope="session")
def kept_messages(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """What is kept; with --write-messages, a place for what the tests of this process say, which is then written."""
    path = request.config.rootpath / "tests" / "messages.json"
    if not request.config.getoption("--write-messages"):
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            kept = json.load(file)
        yield kept
        return
    said: Kept = {}
    yield said
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other processes write what their tests say
        kept = json.load(file)
        for name, tests in said.items():
            kept.setdefault(name, {}).update(tests)
        file.seek(0)
        file.truncate()
        json.dump(_without_gone(kept, request.session), file, indent=1, ensure_ascii=False)
        file.write("\n")


def _stable(message: BaseException | str, temporary: Path) -> str:
    """Return the words of a message, without what is another in each run or on each machine."""
    is_of_fields = isinstance(message, ValidationError)
    text = "\n".join(fault for _, fault in faults_of(message)) if is_of_fields else str(message)
    text = re.sub(rf"(\.\./)*/?{re.escape(str(temporary)[1:])}/[^/\s'\",;:)]+", "TMP", text)
    text = text.replace(str(ROOT), "REPOSITORY").rstrip("\n")
    for pattern, stable in VARYING:
        text = re.sub(pattern, stable, text)
    return text


def _without_gone(kept: Kept, session: pytest.Session) -> Kept:
    """Sort, and leave out tests that are not there any more, and those of this run that compare nothing any more."""
    functions = {_function(item.nodeid) for item in session.items}
    run = {item.nodeid for item in session.items if "as_worded" in item.fixturenames}
    is_part = session.config.option.keyword or any("::" in each for each in session.config.args)
    left: Kept = {}
    for file, tests in sorted(kept.items()):
        path = session.config.rootpath / file
        code = path.read_text("utf-8") if path.exists() else ""
        for test, said in sorted(tests.items(), key=_by_numbers):
            test_id = f"{file}::{test}"
            is_gone = _function(test_id) in functions and test_id not in run and not is_part
            if f"def {_function(test)}(" in code and not is_gone:
                left.setdefault(file, {})[test] = said
    return left


def _function(test: str) -> str:
    return test.partition("[")[0]


def _by_numbers(entry: tuple[str, object]) -> list[str | int]:
    """The key by which 10 comes after 9."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", entry[0], flags=re.ASCII)]
