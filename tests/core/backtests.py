"""Payments, rules and backtests of them, for tests."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from buckets.archive.arrived_rows import ARRIVAL
from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.history.backtest.backtest import Backtest
from buckets.history.backtest.report import BacktestReport
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.moment import TimeRange
from buckets.outputs.columns import ALERTS
from buckets.rules.rule import Rule
from tests.core.archived_job import archived
from tests.core.pipeline import Row, arrivals

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"payer": "string", "card": "string"},
        "measures": {"amount": {"scale": 2}},
    }
)
ENGINE = {"allowed_lateness": "100ms", "shards": 3}
STEPS_MS = [0, 0, 1, 1, 2, 5, 10, 30, -1, -5, -40]
FORMS: list[dict[str, Any]] = [
    {
        "group_by": ["payer"],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "20ms"},
        "limit": {"operator": ">", "value": "3"},
    },
    {
        "group_by": ["card", "payer"],
        "aggregate": {"function": "count"},
        "window": {"length": "50ms"},
        "limit": {"operator": ">=", "value": "2"},
    },
    {
        "group_by": ["card"],
        "aggregate": {"function": "avg", "measure": "amount"},
        "window": {"length": "10ms", "left": "open"},
        "limit": {"operator": "<", "value": "1.5"},
    },
    {
        "group_by": ["payer"],
        "features": {
            "recent": {"function": "sum", "of": "amount", "window": "20ms"},
            "payments": {"function": "count", "window": "50ms"},
            "on_card": {"function": "count", "window": "30ms", "group_by": ["card"]},
        },
        "when": "recent > 2 AND payments >= 2 AND on_card >= 1",
    },
    {
        "group_by": [],
        "features": {"payments": {"function": "count", "window": "10ms"}},
        "when": "payments >= 3 OR amount > 4",
    },
]


def rule(rule_id: str, form: int = 0, **changes: Any) -> Rule:
    """A rule of one of the forms, with some fields changed."""
    return Rule.model_validate({"rule_id": rule_id} | FORMS[form] | changes)


@st.composite
def payments(draw: st.DrawFn, max_size: int = 50) -> list[Row]:
    """Payments of a few payers and cards in the order of arrival: some are late, come again, or share an id."""
    rows: list[Row] = []
    there: set[tuple[str, int]] = set()
    clock_ms = 1_700_000_000_000
    parts = st.tuples(
        st.sampled_from(STEPS_MS), st.integers(0, 2), st.integers(0, 2), st.integers(-100, 500), st.integers(0, 15)
    )
    for index, (step_ms, payer, card, cents, again) in enumerate(draw(st.lists(parts, max_size=max_size))):
        if again == 0 and rows:
            rows.append(dict(rows[-1]))
            continue
        amount = f"{Decimal(cents).scaleb(-2)}"
        name, time_ms = rows[-1]["id"] if again == 1 and rows else f"e{index}", clock_ms + step_ms
        name = f"e{index}" if (name, time_ms) in there else name
        there.add((name, time_ms))
        row = {"id": name, "t": time_ms, "payer": f"p{payer}", "card": f"c{card}", "amount": amount}
        clock_ms = max(clock_ms, row["t"])
        rows.append(row)
    return [row | {"position": position} for position, row in enumerate(rows, 1)]


def backtest(rules: Sequence[Rule], **changes: Any) -> Backtest:
    """A backtest of rules, as the settings above have it."""
    settings = {"measure": "amount", "samples": 100} | changes
    settings["span"] = TimeRange(*settings.get("span", ()))
    engine = EngineSettings.model_validate(ENGINE | settings.pop("settings", {}))
    found = Backtest(tuple(rules), SCHEMA, engine, {}, **settings)
    found.check()
    return found


def pieces_of(asked: Backtest, rows: Sequence[Row], size: int = 7) -> list[ArchivePiece]:
    """Cut rows into pieces of a size."""
    whole = archived(arrivals(rows, SCHEMA), SCHEMA, 0).append_column(ARRIVAL, pa.array(range(len(rows)), pa.int64()))
    return [asked.piece(whole.slice(start, size), asked.settings) for start in range(0, len(rows), size)]


def run(asked: Backtest, rows: Sequence[Row], size: int = 7, **options: Any) -> BacktestReport:
    """Score rows in pieces of a size."""
    return asked.run(pieces_of(asked, rows, size), **options)


def alerts(pieces: Iterable[ArchivePiece]) -> list[pa.Table]:
    """Return the alerts of each piece."""
    return [scored.table(ALERTS) for scored in score_pieces(pieces)]
