"""A walk: a real job that is driven through the steps of a plan, and looked at after each of its lives."""

import csv
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.spark.command import run_command
from tests.spark.job_folder import JobFolder
from tests.walk.catalogue import LEVELS, SCHEMA, STAFF, Written
from tests.walk.checker import Checker, Difference
from tests.walk.life import Life
from tests.walk.plan import Plan, Step, moment
from tests.walk.rare import RarePaths
from tests.walk.recorded import Records

Entries = dict[str, tuple[int | None, str]]
SOURCE = {"kind": "json", "path": "source", "max_files_per_trigger": 1}


class WalkFailed(AssertionError):
    """What came out is not what had to."""


class Walk:
    """The job of a walk, in a folder of its own."""

    def __init__(self, plan: Plan, root: Path, say: Callable[[str], None]) -> None:
        self._plan, self._root, self._say = plan, root, say
        self._dice = random.Random(plan.seed)
        self.rare = RarePaths()
        self._settings: dict[str, Any] = {}
        self._job = JobFolder(root)
        self._job.write_schema(SCHEMA)
        self._life: Life | None = None
        self._lives = self._files = 0
        self._interrupted_in: str | None = None
        self._records = Records(self._job.checkpoint)
        self._checker = Checker(self._job.tables, self.rare)

    def run(self, most_steps: int | None = None) -> None:
        """Do the steps, and compare after each life.

        Args:
            most_steps: end after so many; None for all.

        Raises:
            WalkFailed: a difference; says the seed, the step and the first rows.
        """
        steps = self._plan.steps[:most_steps]
        try:
            for step in steps:
                self._do(step)
            if self._life is not None:
                self._do(Step(len(steps) + 1, "stop", settled=True))
        finally:
            if self._life is not None:
                self._life.close()

    def _do(self, step: Step) -> None:
        self._say(str(step))
        try:
            if step.settled and self._life is not None:
                self._life.settle()
            getattr(self, f"_{step.kind}")(**step.what)
        except (Difference, AssertionError) as error:
            message = f"seed {self._plan.seed}, step {step}\n{error}\nthe folder: {self._root}"
            raise WalkFailed(message) from error

    def _configure(self, precision: dict[str, Any], state: dict[str, str] | None = None) -> None:
        lists = {name: {"kind": "file", "path": f"{name}.csv"} for name in (STAFF, LEVELS)}
        self._job.configure(
            source=SOURCE,
            lists=lists,
            state=state,
            trigger={"interval": "50ms"},
            engine={**self._plan.engine, "precision": precision},
        )

    def _start(self) -> None:
        self._lives += 1
        self._life = Life(self._job.conf, self._root / f"life-{self._lives}.log")
        self._life.start()

    def _stop(self) -> None:
        assert self._life is not None
        self._life.stop()
        self._ended("stop")

    def _kill(self, when: str, files: list[list[str]]) -> None:
        assert self._life is not None
        for lines in files:
            self._add_file("plain", lines)
        found = self._life.kill(when, self._dice)
        self._say(f"    killed: {found}")
        self._ended(found)

    def _ended(self, how: str) -> None:
        """Compare what the batches of a life have left."""
        self._life = None
        before, self._interrupted_in = self._interrupted_in, how
        batches = self._records.new()
        if batches:
            if before in ("written", "half_written"):
                self.rare.saw("a batch replayed after half a commit")
            elif before == "begun":
                self.rare.saw("a batch replayed that was only begun")
        self._checker.check(batches)
        self._say(f"    {len(batches)} batches compared")

    def _add_file(self, of: str, lines: list[str]) -> None:
        self._files += 1
        self._job.add_file(self._files, lines)

    def _write_rules(self, note: str, rules: list[Written]) -> None:
        self._put("rules.yaml", yaml.safe_dump({"rules": rules}))

    def _write_list(self, name: str, entries: Entries) -> None:
        text = io.StringIO()
        lines = csv.writer(text)
        lines.writerow(["key", "until", "level"])
        for key, (until_ms, level) in entries.items():
            lines.writerow([key, "" if until_ms is None else moment(until_ms), level])
        self._put(f"{name}.csv", text.getvalue())

    def _snooze(self, rule_id: str, key: str, until: str) -> None:
        done = run_command(
            *("snooze", "--rule", rule_id, "--key", key, "--until", until),
            *("--reason", "known", "--author", "w", "--conf", self._job.conf),
        )
        assert done.returncode == 0, done.stderr

    def _put(self, name: str, text: str) -> None:
        """Write a file, whole at once."""
        partial = self._root / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._root / name)
