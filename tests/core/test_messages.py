"""Tests fail unless what is said is what is kept."""

import json

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("number", [10, 9])
def test_twice(as_worded, tmp_path, number):
    with pytest.raises(ValueError, check=as_worded):
        raise ValueError(f"{number} in {tmp_path}/x is wrong")
    assert as_worded("twice")

def test_once(as_worded):
    assert as_worded("once\\n")
    assert as_worded("once")
"""
KEPT = {
    "tests/test_it.py": {
        "test_once": "once",
        "test_twice[9]": ["9 in TMP/x is wrong", "twice"],
        "test_twice[10]": ["10 in TMP/x is wrong", "twice"],
    }
}


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs tests with a messages.json of their own, and gives how many pass, fail and have an error at their end."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]")
    (pytester.mkdir("tests") / "messages.json").write_text("{}")

    def run(tests, *options):
        (pytester.path / "tests" / "test_it.py").write_text(tests)
        found = pytester.runpytest("-p", "tests.messages", *options).parseoutcomes()
        return found.get("passed", 0), found.get("failed", 0), found.get("errors", 0) + found.get("error", 0)

    return run


@pytest.fixture
def kept(pytester, run):
    """What lies in messages.json, once it is written."""
    assert run(TESTS, "--write-messages") == (3, 0, 0)
    return lambda: json.loads((pytester.path / "tests" / "messages.json").read_text())


def test_words_that_are_not_kept_fail_and_are_not_written(run):
    assert run(TESTS) == (0, 3, 0)
    assert run(TESTS) == (0, 3, 0)


def test_words_that_are_kept_pass_in_every_folder(run, kept):
    assert kept() == KEPT
    assert list(kept()["tests/test_it.py"]) == list(KEPT["tests/test_it.py"])
    assert run(TESTS) == (3, 0, 0)
    assert run(TESTS, "-k", "once") == (1, 0, 0)


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("wrong", "bad", (1, 2, 0)),
        ("raise ValueError", "raise KeyError", (1, 2, 0)),
        ('assert as_worded("twice")', "", (3, 0, 2)),
        ('assert as_worded("twice")', 'assert as_worded("twice") and as_worded("thrice")', (1, 2, 0)),
    ],
)
def test_other_words_another_kind_and_more_or_less_than_is_kept_fail(run, kept, old, new, outcome):
    assert run(TESTS.replace(old, new)) == outcome
    assert kept() == KEPT


def test_what_is_not_tested_any_more_goes_when_all_is_written_and_stays_when_a_part_is(run, kept):
    fewer = TESTS.replace("[10, 9]", "[9]").replace("test_once(as_worded)", "test_once(as_worded=bool)")
    assert run(fewer, "--write-messages", "-k", "9") == (1, 0, 0)
    assert kept()["tests/test_it.py"].keys() == {"test_once", "test_twice[9]", "test_twice[10]"}
    assert run(fewer, "--write-messages") == (2, 0, 0)
    assert kept()["tests/test_it.py"].keys() == {"test_twice[9]"}
    assert run(fewer.replace("test_twice", "test_two"), "--write-messages") == (2, 0, 0)
    assert kept()["tests/test_it.py"].keys() == {"test_two[9]"}
