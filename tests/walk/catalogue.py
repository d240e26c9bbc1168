"""The rules of a walk as they are written, and beside each filter and condition what a loop makes of it.

A walk draws its rules from templates: which there are, in which state, with which window, limit and policies. So the
oracle needs no parser: it looks up what it has to compute by the text that the rule has.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Written = dict[str, Any]
LOW, HIGH = "low", "high"
STAFF, LEVELS = "staff", "levels"
ZONE = "Europe/Berlin"

SCHEMA: Written = {
    "name": "payment",
    "event_id": "id",
    "event_time": {"field": "t", "unit": "ms", "latest": "2100-01-01T00:00:00Z"},
    "attributes": {
        "payer": "string",
        "country": "string",
        "kind": "string",
        "device": "string",
        "payee": "string",
        "items[0].sku": "string",
    },
    "measures": {"amount": {"scale": 2}, "fee": {"scale": 0, "round": "half_even"}},
    "arrays": {"items[].sku": "string"},
    "aliases": {"device": ["gadget"], "payee": ["receiver"]},
}
WIDER: Written = SCHEMA | {
    "version": 2,
    "attributes": {**SCHEMA["attributes"], "channel": "string"},
    "aliases": {**SCHEMA["aliases"], "channel": ["via"]},
}
"""The event schema from some moment on; payments have had the field ever since, some under its old name."""
LATENESS_MS = 600_000
LONGEST_WINDOW_MS = 7_200_000
SHORTEST_TAIL_MS = 900_000
"""Windows of functions that look at single events, and of rules that start again, are no longer."""

Looked = Mapping[str, Callable[[str, int], Mapping[str, str] | None]]
"""By the name of a list, what it has for a key at a time; None where that is nothing."""
FILTERS: dict[str, Callable[[Row, Looked], bool]] = {
    "kind = 'CARD'": lambda row, lists: row["kind"] == "CARD",
    "kind = 'CASH'": lambda row, lists: row["kind"] == "CASH",
    "amount > 20 AND country <> 'FR'": lambda row, lists: (
        row["amount"] is not None and row["amount"] > 20 and row["country"] not in ("FR", None)
    ),
    "payer NOT IN LIST staff": lambda row, lists: (
        row["payer"] is not None and lists[STAFF](row["payer"], row["t"]) is None
    ),
    "'gift' IN items[].sku OR array_size(items[].sku) > 3": lambda row, lists: (
        row["items"] is not None and ("gift" in row["items"] or len(row["items"]) > 3)
    ),
    "items[].sku NOT IN ('gift', 'stolen')": lambda row, lists: (
        row["items"] is not None and not {"gift", "stolen", None} & {*row["items"]}
    ),
    "amount > 20 AND kind = 'CARD'": lambda row, lists: (
        row["amount"] is not None and row["amount"] > 20 and row["kind"] == "CARD"
    ),
    "country = 'ES'": lambda row, lists: row["country"] == "ES",
    "alert_rule = 'payer-sum'": lambda row, lists: row["alert_rule"] == "payer-sum",
}
PAIRS: dict[str, Callable[[Row, Row], bool]] = {
    "amount BETWEEN 0.5 * this.amount AND 2 * this.amount AND kind = 'CARD'": lambda row, own: (
        None not in (row["amount"], own["amount"])
        and own["amount"] <= 2 * row["amount"]
        and row["amount"] <= 2 * own["amount"]
        and row["kind"] == "CARD"
    ),
}
"""Filters of features that name the event whose window it is."""
CONDITIONS: dict[str, Callable[[Mapping[str, Any], Row, Looked], bool]] = {
    "recent > 4 * usual AND n >= 3": lambda f, row, lists: (
        None not in (f["recent"], f["usual"]) and f["recent"] > 4 * f["usual"] and f["n"] >= 3
    ),
    "mine >= 2 AND theirs > 200": lambda f, row, lists: f["mine"] >= 2 and (f["theirs"] or 0) > 200,
    "different >= 3 OR fresh": lambda f, row, lists: f["different"] >= 3 or f["fresh"],
    "n >= 2 AND lookup(levels, payer, 'level') = 'high'": lambda f, row, lists: (
        f["n"] >= 2 and (lists[LEVELS](row["payer"], row["t"]) or {}).get("level") == HIGH
    ),
    "(amount > before OR similar >= 2 OR before IS NULL) AND visit >= 2 AND (came_from <> country OR of_last < 60)": (
        lambda f, row, lists: (
            (f["before"] is None or f["similar"] >= 2 or (row["amount"] is not None and row["amount"] > f["before"]))
            and f["visit"] >= 2
            and (
                (None not in (f["came_from"], row["country"]) and f["came_from"] != row["country"])
                or (f["of_last"] is not None and f["of_last"] < 60)
            )
        )
    ),
    "an_hour_ago >= 3 AND n < an_hour_ago": lambda f, row, lists: f["n"] < f["an_hour_ago"] >= 3,
    "rules >= 2": lambda f, row, lists: f["rules"] >= 2,
    "sent >= 2 * received AND (alike >= 2 OR came_from <> country)": lambda f, row, lists: (
        None not in (f["sent"], f["received"])
        and f["sent"] >= 2 * f["received"]
        and (
            (f["alike"] or 0) >= 2
            or (None not in (f["came_from"], row["country"]) and f["came_from"] != row["country"])
        )
    ),
    "today > 25 * usual OR largest > 500": lambda f, row, lists: (
        (f["usual"] is not None and f["today"] > 25 * f["usual"]) or (f["largest"] is not None and f["largest"] > 500)
    ),
    "moved OR unanswered_s > 0": lambda f, row, lists: f["moved"] or (f["unanswered_s"] or 0) > 0,
    "place > 2 AND spread < 0.9 OR activity > 3 AND weight > 60": lambda f, row, lists: (
        (None not in (f["place"], f["spread"]) and f["place"] > 2 and f["spread"] < Decimal("0.9"))
        or (f["activity"] > 3 and f["weight"] is not None and f["weight"] > 60)
    ),
    "warnings >= 30 OR of_sums >= 2 AND n >= 8 OR risk > 2000 OR payee IN LIST rules.seen AND n > 3": (
        lambda f, row, lists: (
            f["warnings"] >= 30
            or (f["of_sums"] >= 2 and f["n"] >= 8)
            or (f["risk"] is not None and f["risk"] > 2000)
            or (any(f[name] for name in f if name.startswith("seen_")) and f["n"] > 3)
        )
    ),
    "risk > 300 AND spread > 2.5 OR both": lambda f, row, lists: (
        f["both"] or (None not in (f["risk"], f["spread"]) and f["risk"] > 300 and f["spread"] > Decimal("2.5"))
    ),
    "place > 1 AND usual > 1 OR moved OR unanswered_s > 0 OR received > 3": lambda f, row, lists: (
        (None not in (f["place"], f["usual"]) and f["place"] > 1 and f["usual"] > 1)
        or f["moved"]
        or (f["unanswered_s"] or 0) > 0
        or (f["received"] or 0) > 3
    ),
    "plain < n AND n >= 4 AND 'stolen' IN items[].sku": lambda f, row, lists: (
        f["plain"] < f["n"] and f["n"] >= 4 and "stolen" in (row["items"] or ())
    ),
}


@dataclass(frozen=True)
class Template:
    """A rule in all its forms.

    Attributes:
        written: the rule, without what varies.
        varied: by field, what it may be; None leaves the field out.
        is_seen: whether it is never paused: its results say whether those of its group are warm.
        keeps: whether it remembers something of keys, so that it is never deleted: whether that is forgotten until it
            comes back depends on what its keys do meanwhile.
    """

    written: Written
    varied: dict[str, list[Any]] = field(default_factory=dict)
    is_seen: bool = False
    keeps: bool = False

    @property
    def rule_id(self) -> str:
        """The rule's id."""
        return str(self.written["rule_id"])

    def draw(self, dice: random.Random) -> Written:
        """The rule in one of its forms."""
        chosen = {name: dice.choice(options) for name, options in self.varied.items()}
        return self.written | {name: value for name, value in chosen.items() if value is not None}


def _limit(operator: str, *values: int) -> list[Written]:
    return [{"operator": operator, "value": str(value)} for value in values]


def _window(*lengths: str, left: str = "closed") -> list[Written]:
    return [{"length": length, "left": left} for length in lengths]


_COOLDOWNS = [None, "5m", "30m", "3h"]
_MOVED = {
    "function": "sequence",
    "steps": ["kind = 'CASH'", {"dear": "amount > 20 AND kind = 'CARD'"}],
    "without": "country = 'ES'",
    "window": "15m",
}
_UNANSWERED = {
    "function": "absence",
    "step_field": "kind",
    "steps": ["CASH"],
    "without": "CARD",
    "within": "1m",
    "window": "15m",
}
_USUAL = {"function": "avg", "of": {"function": "count", "every": "20m"}, "window": "2h"}
TEMPLATES = (
    Template(
        {
            "rule_id": "payer-sum",
            "group_by": ["payer"],
            "aggregate": {"function": "sum", "measure": "amount"},
            "score": 10,
            "then": {"put": "seen", "key": "payer", "until": "15m"},
        },
        {
            "window": _window("10m", "1h", "2h"),
            "limit": _limit(">", 120, 300),
            "cooldown": _COOLDOWNS,
            "rollout": [None, "50%"],
        },
        is_seen=True,
        keeps=True,
    ),
    Template(
        {
            "rule_id": "payer-cards",
            "group_by": ["payer"],
            "where": {"kind": "CARD"},
            "aggregate": {"function": "count"},
        },
        {"window": _window("30m", left="open"), "limit": _limit(">=", 2, 4), "require_warm": [None, True]},
        is_seen=True,
    ),
    Template(
        {
            "rule_id": "payer-average",
            "group_by": ["payer"],
            "aggregate": {"function": "avg", "measure": "amount"},
        },
        {"window": _window("20m", "2h"), "limit": _limit("<", 15, 40)},
    ),
    Template(
        {
            "rule_id": "dear",
            "group_by": ["payer"],
            "where": "amount > 20 AND country <> 'FR'",
            "aggregate": {"function": "max", "measure": "fee"},
            "score": 40,
        },
        {"window": _window("1h"), "limit": _limit(">=", 60, 90)},
        is_seen=True,
    ),
    Template(
        {
            "rule_id": "country-fees",
            "group_by": ["country"],
            "aggregate": {"function": "sum", "measure": "fee"},
            "score": 30,
        },
        {"window": _window("20m", "1h"), "limit": _limit(">", 300, 900), "cooldown": _COOLDOWNS},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "kind-least",
            "group_by": ["kind"],
            "aggregate": {"function": "min", "measure": "amount"},
            "require_warm": True,
        },
        {"window": _window("10m", "1h", left="open"), "limit": _limit("<=", 2, 5)},
    ),
    Template(
        {"rule_id": "device-count", "group_by": ["payer", "device"], "aggregate": {"function": "count"}},
        {"window": _window("1h"), "limit": _limit(">=", 2, 3)},
        is_seen=True,
    ),
    Template(
        {
            "rule_id": "spike",
            "group_by": ["payer"],
            "features": {
                "recent": {"function": "sum", "of": "amount", "window": "10m"},
                "usual": {"function": "avg", "of": "amount", "window": "2h"},
                "n": {"function": "count", "window": "2h"},
            },
            "when": "recent > 4 * usual AND n >= 3",
        },
        {"cooldown": [None, "30m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "two-sides",
            "group_by": ["payer"],
            "features": {
                "mine": {"function": "count", "window": "30m", "where": "kind = 'CARD'"},
                "theirs": {"function": "sum", "of": "fee", "window": "1h", "group_by": ["country"]},
            },
            "when": "mine >= 2 AND theirs > 200",
            "score": "30 + 10 * mine + amount / 7",
        },
        {"cooldown": _COOLDOWNS},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "countries",
            "group_by": ["payer"],
            "features": {
                "different": {"function": "count_distinct", "of": "country", "window": "15m"},
                "fresh": {"function": "is_first", "window": "15m"},
            },
            "when": "different >= 3 OR fresh",
        },
    ),
    Template(
        {
            "rule_id": "habits",
            "group_by": ["payer"],
            "features": {
                "before": {"function": "max", "of": "amount", "window": {"length": "1h", "exclude": "current"}},
                "similar": {"function": "count", "window": "10m", "where": next(iter(PAIRS))},
                "visit": {"function": "count", "window": {"session": "3m", "within": "15m"}},
                "of_last": {"function": "sum", "of": "amount", "window": {"last": 3, "within": "15m"}},
                "came_from": {"function": "previous", "of": "country", "window": "15m", "where": "kind = 'CASH'"},
            },
            "when": (
                "(amount > before OR similar >= 2 OR before IS NULL) AND visit >= 2 "
                "AND (came_from <> country OR of_last < 60)"
            ),
        },
        {"cooldown": [None, "5m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "quieter",
            "group_by": ["country"],
            "features": {
                "n": {"function": "count", "window": "20m"},
                "an_hour_ago": {"function": "count", "window": {"length": "20m", "offset": "1h"}},
            },
            "when": "an_hour_ago >= 3 AND n < an_hour_ago",
        },
    ),
    Template(
        {
            "rule_id": "passes-on",
            "group_by": ["payer"],
            "features": {
                "sent": {"function": "sum", "of": "fee", "window": "30m"},
                "received": {"function": "sum", "of": "fee", "window": "30m", "group_by": ["payer AS payee"]},
                "came_from": {"function": "previous", "of": "country", "window": "15m", "group_by": ["payer AS payee"]},
                "alike": {"function": "count", "window": "1h", "group_by": ["payer AS payee", "kind"]},
            },
            "when": "sent >= 2 * received AND (alike >= 2 OR came_from <> country)",
        },
        {"cooldown": [None, "10m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "own-days",
            "group_by": ["country"],
            "features": {
                "today": {"function": "count", "window": {"this": "day", "zone": ZONE}},
                "usual": _USUAL,
                "largest": {
                    "function": "max",
                    "of": {"function": "sum", "of": "fee", "every": "1d", "zone": ZONE},
                    "window": "2d",
                },
            },
            "when": "today > 25 * usual OR largest > 500",
        },
        {"cooldown": [None, "30m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "steps",
            "group_by": ["payer"],
            "features": {"moved": _MOVED, "unanswered_s": _UNANSWERED},
            "when": "moved OR unanswered_s > 0",
        },
        {"cooldown": [None, "5m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "fading",
            "group_by": ["payer"],
            "features": {
                "activity": {"function": "decayed_count", "half_life": "2m", "window": "15m"},
                "weight": {"function": "decayed_sum", "of": "amount", "half_life": "5m", "window": "15m"},
                "place": {"function": "rank", "of": "country", "window": "15m"},
                "spread": {"function": "entropy", "of": "device", "window": "15m"},
            },
            "when": "place > 2 AND spread < 0.9 OR activity > 3 AND weight > 60",
        },
    ),
    Template(
        {
            "rule_id": "warned",
            "group_by": ["payer"],
            "where": "kind = 'CARD'",
            "features": {
                "n": {"function": "count", "window": "30m"},
                "warnings": {"on": "alerts", "function": "count", "window": "20m"},
                "of_sums": {
                    "on": "alerts",
                    "function": "count",
                    "window": {"last": 2, "within": "1h"},
                    "where": "alert_rule = 'payer-sum'",
                },
                "risk": {
                    "on": "alerts",
                    "function": "sum",
                    "of": "alert_score",
                    "window": "1h",
                    "group_by": ["payee AS payer"],
                },
            },
            "when": "warnings >= 30 OR of_sums >= 2 AND n >= 8 OR risk > 2000 OR payee IN LIST rules.seen AND n > 3",
        },
        {"cooldown": [None, "10m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "fading-risk",
            "on": "alerts",
            "group_by": ["payer"],
            "features": {
                "risk": {"function": "decayed_sum", "of": "alert_score", "half_life": "2m", "window": "10m"},
                "spread": {"function": "entropy", "of": "alert_rule", "window": "3m"},
                "both": {
                    "function": "sequence",
                    "step_field": "alert_rule",
                    "steps": ["payer-sum", "spike"],
                    "window": "10m",
                },
            },
            "when": "risk > 300 AND spread > 2.5 OR both",
        },
        {"cooldown": [None, "10m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "not-staff",
            "group_by": ["payer"],
            "where": "payer NOT IN LIST staff",
            "aggregate": {"function": "sum", "measure": "amount"},
            "window": {"length": "15m"},
            "reset_on_alert": True,
        },
        {"limit": _limit(">", 100, 200), "cooldown": [None, "5m"]},
        is_seen=True,
        keeps=True,
    ),
    Template(
        {
            "rule_id": "risky",
            "group_by": ["payer"],
            "features": {"n": {"function": "count", "window": "30m"}},
            "when": "n >= 2 AND lookup(levels, payer, 'level') = 'high'",
        },
    ),
    Template(
        {
            "rule_id": "rules-of-payer",
            "on": "alerts",
            "group_by": ["payer"],
            "features": {"rules": {"function": "count_distinct", "of": "alert_rule", "window": "1h"}},
            "when": "rules >= 2",
        },
        {"cooldown": [None, "10m"]},
        keeps=True,
    ),
    Template(
        {
            "rule_id": "scores-of-country",
            "on": "alerts",
            "group_by": ["country"],
            "aggregate": {"function": "sum", "measure": "alert_score"},
        },
        {"window": _window("20m", "2h"), "limit": _limit(">", 100, 400)},
    ),
)
OF_ARRAYS = (
    Template(
        {
            "rule_id": "first-of-payer",
            "group_by": ["payer", "items[0].sku"],
            "aggregate": {"function": "sum", "measure": "fee"},
            "window": {"length": "1h"},
            "limit": {"operator": ">", "value": "150"},
        },
    ),
    Template(
        {
            "rule_id": "gifts",
            "group_by": ["payer"],
            "where": "'gift' IN items[].sku OR array_size(items[].sku) > 3",
            "aggregate": {"function": "count"},
            "window": {"length": "1h"},
            "limit": {"operator": ">=", "value": "2"},
        },
    ),
    Template(
        {
            "rule_id": "baskets",
            "group_by": ["payer"],
            "features": {
                "plain": {"function": "count", "window": "1h", "where": "items[].sku NOT IN ('gift', 'stolen')"},
                "n": {"function": "count", "window": "1h"},
            },
            "when": "plain < n AND n >= 4 AND 'stolen' IN items[].sku",
        },
    ),
)
OF_CHANNELS = Template(
    {
        "rule_id": "channels",
        "group_by": ["channel"],
        "aggregate": {"function": "sum", "measure": "fee"},
        "window": {"length": "20m"},
        "limit": {"operator": ">", "value": "300"},
    },
)
"""A rule that needs the wider event schema."""
BACKFILLED = Template(
    {
        "rule_id": "asked",
        "state": "SHADOW",
        "group_by": ["country"],
        "where": {"kind": "CASH"},
        "aggregate": {"function": "count"},
    },
    {"window": _window("2h"), "limit": _limit(">=", 5, 9)},
)
"""A rule of a group of its own, whose history a job is asked to fill in. On trial, so that no other rule counts it."""
BACKFILLED_HABITS = Template(
    {
        "rule_id": "asked-habits",
        "state": "SHADOW",
        "group_by": ["country", "device"],
        "features": {
            "place": {"function": "rank", "of": "kind", "window": "15m"},
            "usual": _USUAL,
            "moved": _MOVED,
            "unanswered_s": _UNANSWERED,
            "received": {"function": "count", "window": "1h", "group_by": ["payee AS payer"]},
        },
        "when": "place > 1 AND usual > 1 OR moved OR unanswered_s > 0 OR received > 3",
    },
)
"""Another one, of two groups of its own, one of which is of another role."""
STEADY = (*OF_ARRAYS, OF_CHANNELS, BACKFILLED, BACKFILLED_HABITS)
"""Those that stay as they are once they are there."""
BY_ID = {template.rule_id: template for template in (*TEMPLATES, *STEADY)}


def applies(rule_id: str, row: Row) -> bool:
    """Whether a rule with features applies to an event."""
    where = BY_ID[rule_id].written.get("where")
    return where is None or FILTERS[where](row, {})


def step_tests(written: Written) -> tuple[list[Callable[[Row], bool]], Callable[[Row], bool]]:
    """Which events are the steps of a feature, and which must not come."""

    def step(given: Any) -> Callable[[Row], bool]:
        if "step_field" in written:
            return lambda row: row[written["step_field"]] == given
        text = given if isinstance(given, str) else next(iter(given.values()))
        return lambda row: FILTERS[text](row, {})

    without = step(written["without"]) if "without" in written else lambda row: False
    return [step(each) for each in written["steps"]], without


def counted_by(rule_id: str, feature: str) -> Callable[[Row, Row], bool]:
    """Which events a feature counts: called with an event, and the one whose window it is."""
    rule = BY_ID[rule_id].written
    if feature.startswith("seen_"):  # How often a rule has put a payer into the list of that name.
        return lambda row, own: row["alert_rule"] == "payer-sum"
    written = rule["features"][feature]
    of_rule = None if "on" in written else rule.get("where")
    where = None if "steps" in written else written.get("where", of_rule)
    if where is None:
        return lambda row, own: True
    return PAIRS[where] if where in PAIRS else lambda row, own: FILTERS[where](row, {})
