"""The payments of a walk, file by file: a few busy payers, visitors who come once, and whatever breaks an order.

Times are those of a clock that goes on with the stream. Two payments share a time only where that is meant, soon after
one another, and nothing is repeated later than that: so what a job finds by comparing raw events does not depend on how
long it keeps them, and the oracle needs no model of what has been folded when.
"""

import json
import random
from collections import deque
from typing import Any

from tests.walk.catalogue import LATENESS_MS, SHORTEST_TAIL_MS

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
BUSY = [f"p{number}" for number in range(6)]
COUNTRIES = ["DE", "FR", "IT", "ES"]
KINDS = ["CARD", "CARD", "CASH"]
CHANNELS = ["web", "app", "pos", None]
OLD_NAMES = {"device": "gadget", "channel": "via", "payee": "receiver"}
SKUS = ["book", "book", "pen", "pen", "gift", "stolen", None]
RECENT_MS = 120_000
"""Repeats and collisions are of payments no older than this, which every tail holds."""
WHALE = "whale"
WHALE_PAYMENTS = 260
"""So many in a file that each of two makes a page of its own."""
NULLABLE = ("country", "kind", "amount", "fee")
"""Fields that a few payments do not have."""
HUGE = "60000000000000000.00"
"""Two of them pass 64 bits."""
assert RECENT_MS < SHORTEST_TAIL_MS
Row = dict[str, Any]


class Stream:
    """Makes the lines of one file after the other."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._other_dice = random.Random(repr(dice.getstate()))
        """For what was added later, so that a seed has the payments that it had before."""
        self._payee_dice = random.Random(f"payees {dice.getstate()!r}")
        self.clock_ms = START_MS
        self._number = 0
        self._used: set[int] = set()
        self._recent: deque[Row] = deque(maxlen=12)
        self._visitors: list[Row] = []

    def file(self, kind: str) -> list[str]:
        """The lines of a file: `plain`, `whale` (many of one payer), `slow`, `gap` (hours later), `returns`, `huge`.

        A slow one goes over an hour and a half, without a gap.
        """
        return [*map(self._with_old_names, self._lines(kind))]

    def _lines(self, kind: str) -> list[str]:
        if kind == "slow":
            return [json.dumps(self._payment(self._dice.choice(BUSY), step_ms=60_000)) for _ in range(90)]
        if kind == "gap":
            self.clock_ms += self._dice.choice([3, 4]) * HOUR_MS
        lines = [self._line() for _ in range(self._dice.randrange(30, 50))]
        if kind == "whale":
            lines += [
                json.dumps(self._payment(WHALE, step_ms=self._dice.choice([500, 4_000]))) for _ in range(WHALE_PAYMENTS)
            ]
        if kind == "returns":
            lines[10:10] = [json.dumps(each) for each in self._returning()]
        if kind == "huge":
            lines[5:5] = [json.dumps(each) for each in self._huge()]
        return lines

    def _line(self) -> str:
        what = self._dice.random()
        recent = [row for row in self._recent if self.clock_ms - row["t"] < RECENT_MS]
        if what < 0.04 and recent:
            return json.dumps(self._dice.choice(recent))
        if what < 0.08 and recent:
            # One that was replaced, and comes again, has two rows in one batch, which the oracle would not tell apart.
            other = self._dice.choice(recent)
            self._recent.remove(other)
            row = self._payment(other["payer"]) | {"t": other["t"]}
            return json.dumps(row | {name: other[name] for name in ("country", "kind", "channel", "payee")})
        if what < 0.09:
            return json.dumps(self._payment(self._dice.choice(BUSY)) | {"payer": None})
        if what < 0.10:
            return self._malformed()
        if what < 0.11:
            return json.dumps(self._alone(self._dice.choice([-86_400_000, 951_782_400_000, 5_000_000_000_000])))
        if what < 0.33:
            row = self._payment(f"visitor{self._number}")
            self._visitors.append(row)
            return json.dumps(row)
        if what < 0.42:
            return json.dumps(self._late(self._dice.randrange(1_000, LATENESS_MS)))
        if what < 0.45:
            return json.dumps(self._late(self._dice.randrange(LATENESS_MS, 5 * HOUR_MS)))
        row = self._payment(self._dice.choice(BUSY))
        self._recent.append(row)
        return json.dumps(row)

    def _payment(self, payer: str, step_ms: int | None = None) -> Row:
        """The next payment of the clock."""
        self.clock_ms += self._dice.choice([400, 3_000, 9_000, 20_000, 45_000]) if step_ms is None else step_ms
        return self._row(payer, self._unused(self.clock_ms, 1))

    def _late(self, age_ms: int) -> Row:
        return self._row(self._dice.choice(BUSY), self._unused(self.clock_ms - age_ms, -1))

    def _alone(self, time_ms: int) -> Row:
        """A payment with a wild date, which shares no key with others."""
        row = self._row(f"wild{self._number}", time_ms)
        return row | dict.fromkeys(("country", "kind", "channel", "payee"), row["payer"])

    def _huge(self) -> list[Row]:
        """Payments of one payer whose sum passes 64 bits at the second one, and a small one."""
        payer = f"huge{self._number}"
        alone = {"country": payer, "kind": payer, "channel": payer, "payee": payer, "device": "phone"}
        rows = [self._payment(payer) | alone for _ in range(3)]
        return [rows[0] | {"amount": HUGE}, rows[1] | {"amount": HUGE}, rows[2]]

    def _returning(self) -> list[Row]:
        """Payments of visitors from hours ago, dated soon after their first one."""
        gone = [row for row in self._visitors if self.clock_ms - row["t"] > 3 * HOUR_MS]
        chosen = self._dice.sample(gone, min(len(gone), 8))
        rows = []
        for row in chosen:
            again = self._row(row["payer"], self._unused(row["t"] + self._dice.randrange(1_000, 60_000), 1))
            rows.append(again | {name: row[name] for name in ("country", "kind", "channel", "payee", "device")})
        return rows

    def _row(self, payer: str, time_ms: int) -> Row:
        dice = self._dice
        self._number += 1
        amount = dice.randrange(-500, 6_000) if dice.random() < 0.9 else dice.randrange(6_000, 40_000)
        missing = [name for name in NULLABLE if dice.random() < 0.04]
        row = {
            "id": f"e{self._number}",
            "t": time_ms,
            "payer": payer,
            "country": dice.choice(COUNTRIES),
            "kind": dice.choice(KINDS),
            "device": dice.choice(["phone", "desk", None]) if dice.random() < 0.4 else "phone",
            "amount": f"{amount / 100:.2f}",
            "fee": dice.randrange(100),
        }
        row |= dict.fromkeys(missing) | self._added() | {"payee": self._payee_dice.choice([*BUSY, *BUSY, payer, None])}
        if row["fee"] is not None and self._other_dice.random() < 0.2:
            row["fee"] += 0.5
        return row

    def _added(self) -> Row:
        """A field that no event schema has at first, and a list of objects."""
        dice = self._other_dice
        skus = [dice.choice(SKUS) for _ in range(dice.choice([0, 1, 1, 2, 3, 5]))]
        items = [{} if sku is None else {"sku": sku, "price": 1} for sku in skus]
        return {"channel": dice.choice(CHANNELS)} | ({"items": items} if dice.random() < 0.9 else {})

    def _with_old_names(self, line: str) -> str:
        """A line that may have fields under the names that they had before."""
        for name, old in OLD_NAMES.items():
            if (self._payee_dice if name == "payee" else self._other_dice).random() < 0.2:
                line = line.replace(f'"{name}":', f'"{old}":')
        return line

    def _malformed(self) -> str:
        row = self._row("nobody", self.clock_ms)
        return self._dice.choice(
            [
                "{",
                '"a text"',
                json.dumps(row | {"amount": "1.234"}),
                json.dumps(row | {"id": None}),
                json.dumps(row | {"t": "yesterday"}),
                json.dumps(row | {"fee": "1,5"}),
                json.dumps(row)[:-1] + ', "fee": 3}',
            ]
        )

    def _unused(self, time_ms: int, step: int) -> int:
        while time_ms in self._used:
            time_ms += step
        self._used.add(time_ms)
        return time_ms
