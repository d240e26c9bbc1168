"""What a backtest has found, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from buckets.duration import DAY_MS
from buckets.events.bad_rows import BadRows
from buckets.history.backtest.sweep import Sweep
from buckets.outputs.comparison import Caught, Comparison
from buckets.rules.rule import State

TITLES: dict[Caught, str] = {"only_a": "only old", "only_b": "only new", "both": "both"}
"""The parts of an overlap: what was recorded is old, what the backtest raised is new."""


@dataclass(frozen=True)
class FraudFigures:
    """Alerts beside the confirmed fraud of the range.

    Money is *saved* where a payment that was fraud alerted itself, or arrived after an alert of the range for the same
    values of the alerting rule's `group_by`; a rule that groups by nothing saves only what alerts itself.

    Attributes:
        confirmed: how many events of the range are confirmed fraud.
        alerted: how many different events alerted.
        caught: how many of these are confirmed fraud.
        after: how many others of the confirmed ones arrived after an alert of their key.
        caught_amount: what was caught.
        after_amount: what arrived after an alert.
    """

    confirmed: int
    alerted: int
    caught: int
    after: int
    caught_amount: Decimal
    after_amount: Decimal

    @property
    def fraud_of_alerted(self) -> Fraction | None:
        """Return the share of the events that alerted which are confirmed fraud; None where none alerted."""
        return Fraction(self.caught, self.alerted) if self.alerted else None

    @property
    def caught_of_confirmed(self) -> Fraction | None:
        """Return the share of the confirmed fraud that alerted; None where there is none."""
        return Fraction(self.caught, self.confirmed) if self.confirmed else None

    @property
    def saved_amount(self) -> Decimal:
        """What was caught, or arrived after an alert."""
        return self.caught_amount + self.after_amount


@dataclass(frozen=True)
class Figures:
    """What some rules have raised together.

    Attributes:
        alerts: how many alerts.
        held: how many alerts policies have held back.
        events: how many different events alerted.
        keys: how many different keys.
        amount: the sum of the amounts of these events; None where events have no amount.
        fraud: alerts beside confirmed fraud; None where that is not known.
    """

    alerts: int
    held: int
    events: int
    keys: int
    amount: Decimal | None
    fraud: FraudFigures | None


@dataclass(frozen=True)
class KeyCount:
    """A key with many alerts: the key as JSON, and how many."""

    key: str
    alerts: int


@dataclass(frozen=True)
class RuleResult:
    """What a rule has raised.

    Attributes:
        rule_id: the rule.
        state: ACTIVE, or SHADOW of one on trial.
        sentence: the rule in English.
        figures: what it raised; of a rule on trial its shadow alerts.
        keys: those with most alerts.
        overlap: with its recorded alerts; None where none are known.
    """

    rule_id: str
    state: State
    sentence: str
    figures: Figures
    keys: tuple[KeyCount, ...]
    overlap: Comparison | None


@dataclass(frozen=True)
class VariantResult:
    """What the swept rules have raised together with one value of each sweep, in the order of the sweeps."""

    values: tuple[str, ...]
    is_as_written: bool
    figures: Figures


@dataclass(frozen=True)
class BacktestReport:
    """What a set of rules would have raised.

    Attributes:
        begin_ms: the first event time that counts.
        end_ms: the first one after them.
        days: by how many days figures per day are divided; see `CountedDays`.
        arrivals: how many events of this range have arrived.
        bad: the rows of all that was read that are no events, or could not be evaluated by some rule.
        measure: the field that is the amount of an event; None for none.
        rules: each rule that is evaluated, in the order in which they are written.
        total: the ACTIVE rules together.
        days_with_alerts: by day (UTC, days since 1970) the alerts of each ACTIVE rule.
        overlap: the ACTIVE rules with the alerts that were recorded; None where none are known.
        gone: rules with recorded alerts in the range that are not among the rules, and how many alerts they have.
        sweeps: what was swept.
        variants: of each combination of values what came out.
        unknown_fraud: how many events of confirmed fraud are not in what was read.
        notes: what a reader should know.
    """

    begin_ms: int
    end_ms: int
    days: Fraction
    arrivals: int
    bad: BadRows
    measure: str | None
    rules: tuple[RuleResult, ...]
    total: Figures
    days_with_alerts: Mapping[int, Mapping[str, int]]
    overlap: Comparison | None
    gone: Mapping[str, int]
    sweeps: tuple[Sweep, ...]
    variants: tuple[VariantResult, ...]
    unknown_fraud: int
    notes: tuple[str, ...]

    @property
    def day_range(self) -> tuple[int, int]:
        """The first and the last day that is shown, in days since 1970 in UTC: of the range, with its quiet days.

        Where a wild date makes the range twice as long as the days that count, of the days with alerts.
        """
        first, last = self.begin_ms // DAY_MS, (self.end_ms - 1) // DAY_MS
        ends = [] if last - first > 2 * self.days + 2 else [first, last]
        return min([*ends, *self.days_with_alerts]), max([*ends, *self.days_with_alerts])

    def per_day(self, number: int) -> Fraction:
        """Return a number divided by the days that count."""
        return number / self.days
