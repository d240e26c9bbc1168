"""What anybody may type is checked in a process of its own: with an end, one at a time of a person, few at once."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from buckets.questions import rule_checks
from tests.console.job_folder import write_job
from tests.console.served import Served, serving

TOKEN_HEADER = "X-User"
RULE = """
rules:
  - rule_id: mine
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 1h}
    limit: {operator: '>', value: '90'}
"""
TEST = """
tests:
  - name: one
    given: [{payer: p1, amount: '100', at: 0s}]
    expect: {alerts: [{event: 1}]}
"""
MANY = """
tests:
  - name: many
    given: [{payer: p1, amount: '1', at: 0s, repeat: {times: 100000, every: 1ms}}]
    expect: {alerts: []}
"""
WILD = "    where: payer LIKE '" + "%a" * 110 + "%b'\n"
LONG = f"""
tests:
  - name: long texts
    defaults: {{payer: {"a" * 90_000}}}
    given: [{{amount: '100', at: 0s, repeat: {{times: 50, every: 1s}}}}]
    expect: {{alerts: []}}
"""


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("job"), console={"trusted_user_header": TOKEN_HEADER})


@pytest.fixture
def served(conf):
    with serving(conf) as one:
        yield one


def check(served: Served, text: str, person: str = "ann") -> str:
    """What is said of a text by a browser of its own."""
    browser = Served(served.console)
    browser.ask("/rule/edit", X_User=person)
    answer = browser.ask("/rule/check", {"text": text}, X_User=person, HX_Request="true")
    assert answer.status == 200
    return answer.text


def asked_at_once(*asked: Callable[[], Any]) -> list[Any]:
    found: list[Any] = [None] * len(asked)

    def ask(at: int) -> None:
        found[at] = asked[at]()

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_pattern_with_a_hundred_wildcards_over_long_texts_is_over_at_once(served):
    assert "1 of 1 tests pass" in check(served, RULE + WILD + LONG)
    assert "1 of 1 tests pass" in check(served, RULE + TEST)


def test_a_check_that_takes_too_long_is_ended_and_the_next_one_is_not(served, monkeypatch):
    check(served, RULE)  # the kernels are loaded
    monkeypatch.setattr(rule_checks, "WITHIN_MS", 200)
    assert "checks and tests take more than 200ms" in check(served, RULE + MANY).lower()
    monkeypatch.undo()
    assert "1 of 1 tests pass" in check(served, RULE + TEST)


def test_a_check_that_takes_too_much_memory_is_ended_and_the_next_one_is_not(served, monkeypatch):
    monkeypatch.setattr(rule_checks, "MOST_BYTES", 200 << 20)
    said = check(served, RULE + LONG.replace("times: 50", "times: 100000"))
    assert "200 MiB of memory" in said or "for want of memory" in said
    assert "1 of 1 tests pass" in check(served, RULE + TEST)


def test_of_one_person_the_newest_check_is_made_and_pages_are_shown_meanwhile(served, monkeypatch):
    check(served, RULE)
    monkeypatch.setattr(rule_checks, "WITHIN_MS", 5_000)
    began = threading.Event()

    def rules() -> int:
        began.wait()
        return served.ask("/rules", X_User="eve").status

    def many() -> list[str]:
        return asked_at_once(*[lambda: check(served, RULE + MANY)] * 45)

    def after() -> str:
        time.sleep(1)
        began.set()
        return check(served, RULE + TEST, "ben")

    said, status, of_another = asked_at_once(many, rules, after)
    assert status == 200
    assert "1 of 1 tests pass" in of_another
    replaced = [text for text in said if "is checked in its place" in text]
    assert len(replaced) == 44
    assert len(served.console.site.checks._running) == 0


def test_a_console_ends_while_a_rule_is_checked(conf):
    with serving(conf) as served:
        check(served, RULE)

        def ask() -> None:
            # Who asks while the console ends may get no answer, or that it had no time for one.
            with contextlib.suppress(AssertionError, OSError):
                check(served, RULE + MANY.replace("100000", "90000"))

        thread = threading.Thread(target=ask)
        thread.start()
        while not served.console.site.checks._running:
            time.sleep(0.01)
    thread.join()
