"""A running job, from its start to its end, and the moments of a batch in which it can be killed."""

import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from tests.spark.command import RunningCommand
from tests.walk.recorded import Records
from tests.walk.source import Source

NONE_YET = -1
LOOK_EVERY_S = 0.05
GIVE_UP_S = 900
TRYING_AGAIN = "trying again"


class Life:
    """A process of `buckets run`, and what its job has done so far."""

    def __init__(self, arguments: Sequence[str], tables: Path, log: Path, records: Records, source: Source) -> None:
        self._tables = tables
        self._records, self._source = records, source
        self._command = RunningCommand(*arguments, log=log, give_up_s=GIVE_UP_S)

    def start(self) -> None:
        """Begin."""
        self._before = self._newest_committed()
        self._command.__enter__()

    def close(self) -> None:
        """Leave nothing of it behind."""
        self._command.__exit__()

    def is_settled(self) -> bool:
        """Whether all that has come is scored."""
        return self._records.scored() == self._source.sent

    def settle(self) -> None:
        """Wait until all that has come is scored."""
        self._command.wait_until(self.is_settled, LOOK_EVERY_S)

    def stop(self) -> None:
        """Interrupt it, once it has done something."""
        self._command.wait_until(lambda: self._newest_committed() > self._before, LOOK_EVERY_S)
        code = self._command.interrupt()
        assert code == 0, f"it ended with {code}: {self._command.stderr}"
        self.close()

    def outlive(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Wait until it says that brokers do not answer.

        Args:
            begin: takes them away.
            end: brings them back.
        """
        said = self._command.stderr.count(TRYING_AGAIN)
        begin()
        self._command.wait_until(lambda: self._command.stderr.count(TRYING_AGAIN) > said, LOOK_EVERY_S)
        end()

    def kill(self, when: str, dice: random.Random) -> str:
        """Kill it in a moment of a batch, the next that can be caught.

        Args:
            when: `begun`: the batch has its rules, and nothing of it is written; `half_written`: some tables have it
                and its accounts are not written; `written`: all of it is, and Spark does not know; `anywhere`: at a
                moment that a clock chooses.
            dice: chooses that moment, and whether the driver dies alone or with its JVM.

        Returns:
            The moment in which it was killed, as it turned out; `idle` if all was scored by then.
        """
        if when == "anywhere":
            ends_s = time.monotonic() + dice.uniform(0, 8)
            self._command.wait_until(lambda: time.monotonic() > ends_s, LOOK_EVERY_S)
            self._command.freeze()
        else:
            self._freeze_at(lambda: self._moment() == when)
        found = self._moment()
        if dice.random() < 0.5:
            self._command.kill_driver()
        else:
            self._command.kill_all()
        self.close()
        return found

    def _freeze_at(self, condition: Callable[[], bool]) -> None:
        while True:
            self._command.wait_until(lambda: condition() or self.is_settled())
            self._command.freeze()
            if condition() or self.is_settled():
                return
            self._command.thaw()

    def _moment(self) -> str:
        """Where the newest batch stands."""
        committed = self._newest_committed()
        if _newest_in(self._tables / "batches") > committed:
            return "written"
        if _newest_in(self._tables / "evaluations") > committed:
            return "half_written"
        record = BatchRecords(self._records.checkpoint).record(committed + 1)
        return "idle" if record is None else "begun"

    def _newest_committed(self) -> int:
        return max(self._records.committed(), default=NONE_YET)


def _newest_in(table: Path) -> int:
    """The newest batch that a Delta table has a commit for."""
    for commit in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "txn" in action:
                return int(action["txn"]["version"])
    return NONE_YET
