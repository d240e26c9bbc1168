"""A walk as a list of steps, which follows from its seed alone.

A walk is made of lives: the job starts, things happen to it while it runs, and it ends, by an interrupt or `kill -9`.
Between two lives its settings may change. What has to happen for a rare path to be reached (hundreds of payments of one
payer, hours without any, visitors who return) is part of every plan; when it happens is drawn.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.walk.catalogue import (
    BACKFILLED,
    BACKFILLED_HABITS,
    BY_ID,
    HIGH,
    LATENESS_MS,
    LEVELS,
    LOW,
    OF_ARRAYS,
    OF_CHANNELS,
    STAFF,
    STEADY,
    TEMPLATES,
    WIDER,
    Template,
    Written,
)
from tests.walk.stream import BUSY, HOUR_MS, Stream

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHANGES = ["rules", "rules", "list", "snooze", "return", "clear"]
MUSTS = {0: "snooze", 1: "clear", 2: "list"}
"""By life, what has to change in it, so that every walk has it."""
FILES_OF_LIFE = 4
"""Files that come in one life, about."""
KILLS = ("written", "half_written", "begun", "anywhere")
"""When the job is killed: see `life.Life.kill`."""
TIERED = {"tail": "15m", "resolution": "1m", "tiers": [{"after": "1h", "resolution": "10m"}]}
PRECISIONS: list[dict[str, Any]] = [
    TIERED,
    {"tail": "20m", "resolution": "2m", "edge": "prorate"},
    {"tail": "1h", "resolution": "5m", "edge": "exclude"},
]
ALL = {"tail": "all"}
CLEARED = ["payer-sum", "payer-sum", "country-fees", "two-sides"]
"""Rules whose groups are cleared; they are never deleted."""
NARROW = {"log": "2KiB", "cache": "2KiB"}
"""So little of the state in logs and in memory that each batch moves some of it to the store, and reads it."""


@dataclass(frozen=True)
class Step:
    """Something that happens.

    Attributes:
        number: from 1.
        kind: what happens, by the name of the method of `walk.Walk` that does it.
        what: its arguments.
        settled: whether everything that has come so far is scored before; otherwise it happens whenever it does.
    """

    number: int
    kind: str
    what: dict[str, Any] = field(default_factory=dict)
    settled: bool = False

    def __str__(self) -> str:
        shown = {name: value for name, value in self.what.items() if isinstance(value, str | int | list)}
        texts = [f"{name} {value}" for name, value in shown.items() if len(str(value)) < 80]
        return f"{self.number:3d} {self.kind}{': ' if texts else ''}{', '.join(texts)}"


@dataclass(frozen=True)
class Plan:
    """A walk.

    Attributes:
        seed: from which it is made.
        engine: settings of the engine that stay as they are.
        steps: in order.
    """

    seed: int
    engine: dict[str, Any]
    steps: tuple[Step, ...]


def make_plan(seed: int, lives: int, topics: bool = False) -> Plan:
    """The walk of a seed.

    Args:
        seed: any number.
        lives: how often the job starts; 4 or more, so that everything that has to happen does.
        topics: whether payments and rules come through a broker, which goes away at times.
    """
    dice = random.Random(seed)
    engine = {
        "shards": dice.choice([2, 3]),
        "allowed_lateness": f"{LATENESS_MS // 60_000}m",
        "late": dice.choice(["add", "evaluate"]),
        "collision": dice.choice(["keep", "keep_first", "replace"]),
    }
    steps = _Draft(dice, lives, topics).steps()
    return Plan(seed, engine, tuple(Step(number, *each) for number, each in enumerate(steps, 1)))


_STEADY = {template.rule_id for template in STEADY}
_Planned = tuple[str, dict[str, Any], bool]


class _Draft:
    """The steps while they are drawn, and the job's rules and lists as they will be by then."""

    def __init__(self, dice: random.Random, lives: int, topics: bool) -> None:
        self._dice, self._lives, self._topics = dice, lives, topics
        self._stream = Stream(dice)
        self._rules = {template.rule_id: template.draw(dice) for template in TEMPLATES if self._begins(template)}
        self._rules |= {template.rule_id: template.draw(dice) for template in OF_ARRAYS}
        self._gone = [template.rule_id for template in TEMPLATES if template.rule_id not in self._rules]

    def _begins(self, template: Any) -> bool:
        return bool(template.keeps or self._dice.random() < 0.7)

    def steps(self) -> Iterator[_Planned]:
        yield "write_rules", self._written("the first rules"), False
        yield "write_list", self._list(STAFF), False
        yield "write_list", self._list(LEVELS), False
        precisions = [ALL, *self._dice.sample(PRECISIONS, 2)]
        last = self._lives - 1
        kills = itertools.cycle([*self._dice.sample(KILLS[:2], 2), *KILLS[2:]])
        kinds = self._kinds()
        for life in range(self._lives):
            # A replay does not know how fast a history was filled in, so precision stays what it is meanwhile.
            precision = TIERED if life == last else precisions[(0, 1, 1, 0, 2, 2)[life % 6]]
            changes: dict[str, Any] = {"precision": precision}
            if self._dice.random() < 0.5:
                changes["state"] = NARROW
            yield "configure", changes, False
            # A topic does not ask again for a rule that it has refused, so there the field comes first.
            if life == 1 and self._topics:
                yield "write_schema", {"schema": WIDER}, False
            yield "start", {}, False
            if life == 1:
                yield from self._wider()
                for template in (BACKFILLED, BACKFILLED_HABITS):
                    yield "backfill", {"rule": self._asked(template)}, False
            # Wide buckets are hours old: so much time has to pass, and without a gap before the last look at the state.
            if life == last:
                yield "add_file", {"of": "slow", "lines": self._stream.file("slow")}, False
            calm = (each if life < last - 1 or each != "gap" else "plain" for each in kinds)
            yield from self._life(calm, MUSTS.get(life))
            if life == 2:
                yield "fill_in", {"files": [self._stream.file("plain") for _ in range(12)]}, True
            if life % 3 == 2 or life == last:
                yield "stop", {}, life == last
            else:
                files = [self._stream.file("plain") for _ in range(2)]
                # What the first life has taken in is looked at in the state.
                yield "kill", {"when": next(kills), "files": files}, life == 0
            if life in (0, last):
                yield "look_at_state", {}, False
            if life % 3 == 2 and life != last:
                yield "carry_over", {"partitions": self._dice.choice([1, 2])}, False
        yield "replay", {}, False
        yield "ask_tasks", {"rules": [*self._rules.values()]}, False
        yield "explain", {"sample": self._dice.randrange(2**31)}, False
        if not self._topics:
            yield "stream", {"rules": [*self._rules.values()]}, False

    def _wider(self) -> Iterator[_Planned]:
        """A rule that needs a field, and the field, if it is not there yet."""
        self._rules[OF_CHANNELS.rule_id] = OF_CHANNELS.draw(self._dice)
        yield "write_rules", self._written("a field more, and a rule that uses it"), False
        if not self._topics:
            yield "write_schema", {"schema": WIDER}, False

    def _kinds(self) -> Iterator[str]:
        """Of what kind each file is: those that have to come first, so that every walk has them."""
        musts = self._dice.sample(["whale", "huge", "whale"], 3)
        yield from ["plain", *musts, "gap", "plain", "plain", "plain", "plain", "returns", "plain", "returns"]
        while True:
            yield self._dice.choice(["plain", "plain", "plain", "gap", "whale", "huge", "returns"])

    def _life(self, kinds: Iterator[str], must: str | None) -> Iterator[_Planned]:
        changes = self._dice.sample(CHANGES, 3)
        if must is not None and must not in changes:
            changes[self._dice.randrange(len(changes))] = must
        for turn in range(FILES_OF_LIFE):
            kind = next(kinds)
            yield "add_file", {"of": kind, "lines": self._stream.file(kind)}, False
            if turn < len(changes):
                yield from self._change(changes[turn])
        if self._topics:
            yield "serve", {"lines": self._stream.file("plain")}, True
            yield "outage", {}, True
            yield "clear_state", {"rule_id": self._dice.choice(CLEARED)}, self._dice.random() < 0.5

    def _change(self, kind: str) -> Iterator[_Planned]:
        settled = self._dice.random() < 0.7
        if kind == "list":
            yield "write_list", self._list(self._dice.choice([STAFF, LEVELS])), settled
        elif kind == "snooze":
            yield "snooze", self._snooze(), settled
        elif kind == "return":
            yield "write_rules", self._deleted_or_back(), True  # or it lands with the change before it
        elif kind == "clear":
            yield "write_rules", self._cleared(), True
            yield "add_file", {"of": "plain", "lines": self._stream.file("plain")}, False
            yield "write_rules", self._written("kind-least is back"), True
        else:
            yield "write_rules", self._changed(), settled

    def _written(self, note: str) -> dict[str, Any]:
        return {"note": note, "rules": [dict(rule) for rule in self._rules.values()]}

    def _changed(self) -> dict[str, Any]:
        """Some rules get another limit, window, policy or state."""
        notes = []
        for rule_id in self._dice.sample(sorted(self._rules.keys() - _STEADY), 3):
            template, before = BY_ID[rule_id], self._rules[rule_id]
            rule = template.draw(self._dice)
            rule |= {name: before[name] for name in ("snoozes",) if name in before}
            states = ["ACTIVE", "SHADOW"] if template.is_seen else ["ACTIVE", "ACTIVE", "SHADOW", "PAUSE"]
            rule["state"] = self._dice.choice(states)
            self._rules[rule_id] = rule
            notes.append(f"{rule_id} {rule['state']}")
        return self._written(", ".join(notes))

    def _deleted_or_back(self) -> dict[str, Any]:
        """A rule that is gone comes back, or one goes."""
        if self._gone and self._dice.random() < 0.6:
            rule_id = self._gone.pop(self._dice.randrange(len(self._gone)))
            self._rules[rule_id] = BY_ID[rule_id].draw(self._dice)
            return self._written(f"{rule_id} comes back")
        there = [each for each in self._rules if not BY_ID[each].keeps and each not in _STEADY]
        if not there:
            return self._changed()
        rule_id = self._dice.choice(there)
        del self._rules[rule_id]
        self._gone.append(rule_id)
        return self._written(f"{rule_id} goes")

    def _asked(self, template: Template) -> Written:
        """A rule whose history is filled in from now on."""
        rule = self._rules[template.rule_id] = template.draw(self._dice)
        return rule

    def _cleared(self) -> dict[str, Any]:
        """The only rule of a group goes; the next step brings it back, as another generation."""
        rule = BY_ID["kind-least"].draw(self._dice)
        self._rules.pop("kind-least", None)
        written = self._written("kind-least goes, and with it its group")
        self._rules["kind-least"] = rule
        self._gone = [each for each in self._gone if each != "kind-least"]
        return written

    def _snooze(self) -> dict[str, Any]:
        rule_id = self._dice.choice(["payer-sum", "payer-sum", "two-sides", "not-staff"])
        until_ms = self._stream.clock_ms + self._dice.choice([2, 6]) * HOUR_MS
        key = {"payer": self._dice.choice(BUSY)}
        until = moment(until_ms)
        there: Written = self._rules[rule_id]
        there["snoozes"] = [*there.get("snoozes", ()), {"key": key, "until": until, "reason": "known", "author": "w"}]
        return {"rule_id": rule_id, "key": f"payer={key['payer']}", "until": until}

    def _list(self, name: str) -> dict[str, Any]:
        """A list with some of the busy payers, of whom some stay for a while only."""
        entries: dict[str, tuple[int | None, str]] = {}
        for payer in self._dice.sample(BUSY, self._dice.randrange(1, 5)):
            hours = self._dice.choice([None, 1, 4])
            until_ms = None if hours is None else self._stream.clock_ms + hours * HOUR_MS
            entries[payer] = until_ms, self._dice.choice([LOW, HIGH])
        return {"name": name, "entries": entries}


def moment(time_ms: int) -> str:
    """A time as configurations and lists write it."""
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
