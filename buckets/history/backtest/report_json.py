"""The report of a backtest as JSON: numbers that are shares as fractions of one, money as decimal text."""

import json
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from buckets.history.backtest.expectation import CheckedExpectation
from buckets.history.backtest.report import TITLES, BacktestReport, Figures
from buckets.moment import day_text, iso_text
from buckets.outputs.comparison import PARTS, Comparison


def report_json(report: BacktestReport, outcomes: Iterable[CheckedExpectation] = ()) -> dict[str, Any]:
    """Return a report as values that JSON knows."""
    return {
        "from": iso_text(report.begin_ms),
        "to": iso_text(report.end_ms),
        "days": float(report.days),
        "arrivals": report.arrivals,
        "dead_letters": report.bad.bad,
        "bad_rows": report.bad.as_json(),
        "rounded": dict(report.bad.rounded),
        "measure": report.measure,
        "total": _figures(report, report.total),
        "rules": [
            {
                "rule_id": rule.rule_id,
                "state": rule.state,
                "rule": rule.sentence,
                **_figures(report, rule.figures),
                "top_keys": [{"key": json.loads(top.key), "alerts": top.alerts} for top in rule.keys],
                "overlap": _overlap(rule.overlap),
            }
            for rule in report.rules
        ],
        "by_day": [
            {"day": day_text(day), "alerts": sum(of_day.values()), "rules": dict(of_day)}
            for day, of_day in report.days_with_alerts.items()
        ],
        "overlap": _overlap(report.overlap),
        "rules_gone": dict(report.gone),
        "sweeps": [
            {"rule_id": sweep.rule_id, "parameter": sweep.parameter, "values": list(sweep.values)}
            for sweep in report.sweeps
        ],
        "variants": [
            {
                "values": dict(zip((sweep.name for sweep in report.sweeps), variant.values, strict=True)),
                "as_written": variant.is_as_written,
                **_figures(report, variant.figures),
            }
            for variant in report.variants
        ],
        "unknown_fraud": report.unknown_fraud,
        "expectations": [
            {"expect": outcome.expectation.text, "value": _number(outcome.value), "met": outcome.is_met}
            for outcome in outcomes
        ],
        "notes": list(report.notes),
    }


def _figures(report: BacktestReport, figures: Figures) -> dict[str, Any]:
    values: dict[str, Any] = {
        "alerts": figures.alerts,
        "alerts_per_day": float(report.per_day(figures.alerts)),
        "held": figures.held,
        "events": figures.events,
        "keys": figures.keys,
        "amount": _money(figures.amount),
    }
    fraud = figures.fraud
    if fraud is not None:
        values |= {
            "confirmed_fraud": fraud.confirmed,
            "caught": fraud.caught,
            "precision": _number(fraud.fraud_of_alerted),
            "recall": _number(fraud.caught_of_confirmed),
            "after_an_alert": fraud.after,
            "caught_amount": _money(fraud.caught_amount),
            "after_an_alert_amount": _money(fraud.after_amount),
            "saved_amount": _money(fraud.saved_amount),
        }
    return values


def _overlap(overlap: Comparison | None) -> dict[str, Any] | None:
    if overlap is None:
        return None
    return {TITLES[name].replace(" ", "_"): overlap.parts[name].to_json() for name in PARTS}


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def _number(value: Fraction | None) -> float | int | None:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)
