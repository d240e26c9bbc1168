"""The report of a backtest as JSON: numbers that are shares as fractions of one, money as decimal text."""

import json
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from buckets.history.backtest.expectation import CheckedExpectation
from buckets.history.backtest.figures_text import TITLES
from buckets.history.backtest.report import BacktestReport, Figures
from buckets.moment import day_text, iso_text
from buckets.outputs.comparison import PARTS, Comparison, Sample


def report_json(report: BacktestReport, outcomes: Iterable[CheckedExpectation] = ()) -> dict[str, Any]:
    """A report as values that JSON knows."""
    return {
        "from": iso_text(report.begin_ms),
        "to": iso_text(report.end_ms),
        "days": float(report.days),
        "arrivals": report.arrivals,
        "dead_letters": report.bad.bad,
        "bad_rows": report.bad.as_json(),
        "measure": report.measure,
        "total": _figures(report, report.total),
        "rules": [
            {
                "rule_id": rule.rule_id,
                "state": rule.state,
                "rule": rule.sentence,
                **_figures(report, rule.figures),
                "top_keys": [{"key": json.loads(each.key), "alerts": each.alerts} for each in rule.keys],
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
            {"rule_id": each.rule_id, "parameter": each.parameter, "values": list(each.values)}
            for each in report.sweeps
        ],
        "variants": [
            {
                "values": dict(zip((each.name for each in report.sweeps), variant.values, strict=True)),
                "as_written": variant.is_as_written,
                **_figures(report, variant.figures),
            }
            for variant in report.variants
        ],
        "unknown_fraud": report.unknown_fraud,
        "expectations": [
            {"expect": each.expectation.text, "value": _number(each.value), "met": each.is_met} for each in outcomes
        ],
        "notes": list(report.notes),
    }


def _figures(report: BacktestReport, figures: Figures) -> dict[str, Any]:
    found: dict[str, Any] = {
        "alerts": figures.alerts,
        "alerts_per_day": float(report.per_day(figures.alerts)),
        "held": figures.held,
        "events": figures.events,
        "keys": figures.keys,
        "amount": _money(figures.amount),
    }
    fraud = figures.fraud
    if fraud is not None:
        found |= {
            "confirmed_fraud": fraud.confirmed,
            "caught": fraud.caught,
            "precision": _number(fraud.fraud_of_alerted),
            "recall": _number(fraud.caught_of_confirmed),
            "after_an_alert": fraud.after,
            "caught_amount": _money(fraud.caught_amount),
            "after_an_alert_amount": _money(fraud.after_amount),
            "saved_amount": _money(fraud.saved_amount),
        }
    return found


def _overlap(found: Comparison | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        TITLES[name].replace(" ", "_"): {
            "events": found.parts[name].events,
            "keys": found.parts[name].keys,
            "amount": _money(found.parts[name].amount),
            "samples": [_sample(each) for each in found.parts[name].samples],
        }
        for name in PARTS
    }


def _sample(each: Sample) -> dict[str, Any]:
    time, key = iso_text(each.event_time_ms), json.loads(each.key)
    return {"event_id": each.event_id, "event_time": time, "key": key, "amount": _money(each.amount)}


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def _number(value: Fraction | None) -> float | int | None:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)
