"""Checks and tests rules that people and assistants type, each in a separate process with limits.

The typed text determines the amount of work, and anybody who may look may type. So a check has limits of time and
memory, a person runs one at a time, and few run at once. Processes are forked from one that has loaded the kernels,
which starts with the first check and ends with its parent.
"""

import multiprocessing
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from buckets.changes.typed_rule import findings_of, outcomes_of, read_rule
from buckets.config.job import Job
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.rule_tests.tester import RuleTestOutcome
from buckets.rules.rule import Rule

WITHIN_MS = 20_000
MOST_BYTES = 2 << 30  # The memory that a check may allocate
_AT_ONCE: Final = 3
_MEMORY: Final = Path("/proc/self/statm")
_BEGUN_AS: Final = "buckets.questions.loaded_kernels"
"""The module imported by the process from which checks are forked."""


@dataclass(frozen=True)
class RuleReport:
    """The results of a rule's checks and tests."""

    rule: Rule  # the rule
    findings: list[dict[str, Any]]  # what is wrong with it, as `buckets rules check` finds it
    outcomes: list[RuleTestOutcome]  # what became of its tests


class RuleChecks:
    """Checks rules for some people."""

    def __init__(self, is_replaced: bool) -> None:
        """Begin without checks.

        With `is_replaced` a person's next check replaces the running one, as when they go on typing; otherwise it
        waits.
        """
        self._is_replaced = is_replaced
        self._running: dict[str, ForkServerProcess] = {}
        self._changed = threading.Condition()
        self._fresh = multiprocessing.get_context("forkserver")
        self._fresh.set_forkserver_preload(["__main__", _BEGUN_AS])

    def check(self, text: str, job: Job, person: str) -> RuleReport:
        """Check a text that holds one rule, and its tests, for a person.

        BucketsError if it is not one valid rule, a test does not fit, or it takes too long or too much memory.
        """
        reader, writer = self._fresh.Pipe(duplex=False)
        # Pickling rules takes longer than checking one, and the checked text has its own.
        asked = text, job.model_copy(update={"rules": ()}), WITHIN_MS, MOST_BYTES
        process = self._fresh.Process(target=_answer, args=(writer, *asked), daemon=True)
        with self._turn(person, process), reader, writer:
            try:
                if self._running.get(person) is process:
                    process.start()
                writer.close()
                if self._running.get(person) is not process:  # it could not be ended before it began
                    raise EOFError
                if not reader.poll(WITHIN_MS / 1_000):
                    message = f"checks and tests take more than {format_duration(WITHIN_MS)}; give fewer events"
                    raise BucketsError(message)
                found = reader.recv()
            except EOFError:
                with self._changed:
                    is_replaced = self._running.get(person) is not process
                why = "the check has ended early, for want of memory or by a fault that the log describes"
                message = "what you have typed since is checked in its place" if is_replaced else why
                raise BucketsError(message) from None
            finally:
                _end(process)
        if isinstance(found, RuleReport):
            return found
        raise BucketsError(found)

    def close(self) -> None:
        """End all checks."""
        with self._changed:
            for process in self._running.values():
                _end(process)

    @contextmanager
    def _turn(self, person: str, process: ForkServerProcess) -> Iterator[None]:
        """Wait for the person's turn, or end their earlier check."""
        with self._changed:
            before = self._running.get(person)
            if before is not None and self._is_replaced:
                _end(before)
            while not self._is_replaced and person in self._running:
                self._changed.wait()
            if person not in self._running and len(self._running) >= _AT_ONCE:
                message = f"rules of {_AT_ONCE} others are being checked; try again in a moment"
                raise BucketsError(message)
            self._running[person] = process
        try:
            yield
        finally:
            with self._changed:
                if self._running.get(person) is process:
                    del self._running[person]
                self._changed.notify_all()


def _end(process: ForkServerProcess) -> None:
    if process.pid is not None:
        process.kill()
        process.join()


def _answer(writer: Connection, text: str, job: Job, within_ms: int, most_bytes: int) -> None:
    """Send the results of the checks of a text, or an error in one line."""
    _limit(within_ms, most_bytes)
    try:
        typed = read_rule(text, job)
        found: RuleReport | str = RuleReport(typed.rules[0], findings_of(typed, job), outcomes_of(typed, job))
    except BucketsError as error:
        found = error.message
    except MemoryError:
        found = f"checks and tests take more than {most_bytes >> 20:,} MiB of memory; give fewer or shorter events"
    writer.send(found)


def _limit(within_ms: int, most_bytes: int) -> None:
    """Limit the memory of this process, and its CPU time in case its parent has ended."""
    if _MEMORY.exists():  # only Linux enforces a limit of memory
        used = int(_MEMORY.read_text(encoding="ascii").split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + most_bytes, resource.RLIM_INFINITY))
    seconds = within_ms // 1_000 + 1
    resource.setrlimit(resource.RLIMIT_CPU, (4 * seconds, 4 * seconds))
