"""`buckets serve` beside the job of a walk: what calls are answered is what the job writes of the same payments.

The tables themselves are compared with the oracle and the mirror. So an answer is compared with the tables: the
outcome, all alerts with their ids, their values and whether these are exact and warm, and which rules were held back.

What it crosses, by where the step stands in each life: rules that were changed, deleted, brought back and cleared just
before, which the answer's version says; lists, of which it is only compared where all batches beside it had the same;
snoozes, cooldowns, `reset_on_alert` and `require_warm`; fields with their old names, and a schema with one more field;
fields that are null, sums past 64 bits and rows that are no events, which come from others; buckets and tiers, and keys
that were evicted, where both say what is warm; a history that is being filled in, and one that has been; a job that was
killed before it, one that waits for its broker after it, and one with a state that was carried over. Replays and
explanations see its payments as they see all others.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buckets.checkpoint.batch_records import BatchRecords
from tests.kafka.served import FURTHEST, Served
from tests.walk.found import Difference, Row
from tests.walk.source import TOPIC, Topic

SHOWN = 3


class Calls:
    """The answers that a walk has got, until they are compared."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._answers: list[Row] = []

    def make(self, conf: Path, log: Path, checkpoint: Path, source: Topic, lines: Sequence[str]) -> None:
        """Have some payments answered in calls, while others come as messages."""
        answers = []
        with Served(conf, log) as served:
            served.wait_until_ready()
            first = int(served.metric("batch"))
            for line in lines:
                if self._dice.random() < 0.3 or not _is_object(line):
                    source.add([line])
                else:
                    answers.append(self._answer(served, line))
                    source.sent += 1
            last = int(served.metric("batch"))
        records = [BatchRecords(checkpoint).record(number) for number in range(first, last + 1)]
        if len({json.dumps(record.lists, sort_keys=True) for record in records if record is not None}) == 1:
            self._answers += answers

    @staticmethod
    def _answer(served: Served, line: str) -> Row:
        reply = served.ask("/v1/score", line.encode())
        assert reply.status in (200, 422), reply.text
        assert reply.value["outcome"] != "undecided", served.stderr
        answer: Row = reply.value
        return answer

    def compare(self, rows: dict[str, list[Row]]) -> int:
        """Compare with the rows of all tables, by their names; returns how many answers there were.

        Raises:
            Difference: an answer is not what the job says.
        """
        wrong = []
        for answer in (each for each in self._answers if "decision" in each):
            at = answer["offset"]
            of_it = {name: [row for row in found if _place(row) == at] for name, found in rows.items()}
            versions = {row["ruleset_version"] for found in of_it.values() for row in found if "ruleset_version" in row}
            if versions - {answer["ruleset_version"]}:
                continue
            expected = _outcome(of_it), _alerts(of_it["alerts"]), sorted(row["rule_id"] for row in of_it["held_alerts"])
            found = answer["outcome"], _alerts(answer["alerts"]), sorted(answer["decision"]["held"])
            if found != expected:
                wrong.append(f"at {at}: answered {found}, and the job has {expected}")
        letters = {_place(row): row["reason"] for row in rows["dead_letters"]}
        for answer in (each for each in self._answers if "decision" not in each):
            if letters.get(answer["offset"]) != answer["detail"]:
                wrong.append(f"at {answer['offset']}: {answer['detail']}, and not {letters.get(answer['offset'])}")
        if wrong:
            raise Difference("\n".join([f"{len(wrong)} answers differ", *wrong[:SHOWN]]))
        compared, self._answers = len(self._answers), []
        return compared


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _place(row: Row) -> int | None:
    return row["position"] if row.get("source") == f"{TOPIC}[0]" else None


def _alerts(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What alerts say, in a form that tables and messages have in common."""
    found = []
    for row in rows:
        terms = json.loads(row["terms"]) if isinstance(row["terms"], str) else row["terms"]
        said = [(term["name"], term["value"], term["exact"], term.get("warm")) for term in terms or ()]
        found.append((row["alert_id"], row["rule_version"], row["exact"], row["warm"], row["held_back"], *said))
    return sorted(found, key=repr)


def _outcome(rows: dict[str, list[Row]]) -> str:
    """What became of a payment; of several groups, what is furthest from `evaluated`."""
    outcomes = ["evaluated", *("late" if not row["too_late"] else "too_late" for row in rows["late_events"])]
    outcomes += ["collision" for row in rows["collisions"] if not row["kept"]]
    outcomes += ["duplicate"] * len(rows["duplicates"]) + ["dead_letter"] * len(rows["dead_letters"])
    return max(outcomes, key=FURTHEST.index)
