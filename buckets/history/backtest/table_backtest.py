"""A backtest of a table of events, for people who write Python."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.history.backtest.backtest import Backtest
from buckets.history.backtest.confirmed_fraud import given_fraud
from buckets.history.backtest.pieces import check_needed_lists, table_pieces
from buckets.history.backtest.report import BacktestReport
from buckets.history.backtest.sweep import parse_sweeps
from buckets.history.backtest.variants import swept_rules
from buckets.lists.lists import NO_LISTS, Lists
from buckets.moment import TimeRange, moment_ms
from buckets.rules.rule import Rule


def backtest(
    events: pa.Table,
    rules: Iterable[Rule],
    schema: EventSchema,
    engine: EngineSettings | None = None,
    lists: Lists = NO_LISTS,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    amount: str | None = None,
    fraud: Mapping[str, Decimal | float | str | None] | None = None,
    sweeps: Iterable[str] | str = (),
) -> BacktestReport:
    """Say what rules would have raised on a table of events.

    Args:
        events: one row an event, in arrival order, as for `evaluate`.
        rules: the rules.
        schema: the event schema.
        engine: lateness, collisions and precision; the defaults of a job if None.
        lists: by name, the lists that rules look into.
        begin: the first event time that is reported; without a zone it is in UTC; None for any.
        end: the first event time that is not reported any more.
        amount: the measure that is the amount of an event; the first one if None.
        fraud: by id, the events that were fraud, with their amounts; None for an event's own amount. A float counts by
            its shortest text.
        sweeps: other numbers that are tried, as in `limit=1000..10000:10`; one, or several.

    Raises:
        BucketsError: a rule does not fit the schema, a sweep or an amount cannot be read, or no event is in the range.
    """
    chosen = tuple(rules)
    asked = Backtest(
        rules=chosen,
        schema=schema,
        engine=EngineSettings() if engine is None else engine,
        lists=lists,
        span=TimeRange(*(None if moment is None else moment_ms(moment) for moment in (begin, end))),
        measure=next(iter(schema.measures), None) if amount is None else amount,
        confirmed=None if fraud is None else given_fraud(fraud),
        swept=swept_rules(parse_sweeps([sweeps] if isinstance(sweeps, str) else sweeps, chosen), chosen),
    )
    asked.check()
    check_needed_lists(asked.scoring.needed_lists, (), "lists")
    return asked.run(table_pieces(events, asked.scoring))
