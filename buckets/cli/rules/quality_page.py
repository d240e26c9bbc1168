"""The page of `buckets rules quality`: each rule with its numbers, bars, and what to do with it."""

from typing import Any

from buckets.cli.rules.quality_text import alerts_text, duration_text, interval_text, remarks
from buckets.moment import time_text
from buckets.numbers.fixed_point import readable
from buckets.pages.page import render
from buckets.verdicts.advice import Advice, percent
from buckets.verdicts.interval import Interval
from buckets.verdicts.quality import RuleQuality
from buckets.verdicts.report import QualityReport

_CLASSES = {"keep": "good", "retire": "alert"}


def quality_page(report: QualityReport) -> str:
    """The page of a report: self-contained HTML."""
    return render(
        "quality.html",
        rules=[_shown(report, rule, advice) for rule, advice in report.rules],
        frauds=f"{report.frauds:,}",
        measure=report.measure,
        span=_span(report),
        remarks=remarks(report),
        keep=percent(report.thresholds.keep),
        retire=percent(report.thresholds.retire),
        least=report.thresholds.verdicts,
        is_decided=any(rule.decide_ms is not None for rule, _ in report.rules),
        is_recalled=report.frauds >= report.thresholds.verdicts,
    )


def _shown(report: QualityReport, rule: RuleQuality, advice: Advice) -> dict[str, Any]:
    return {
        "rule_id": rule.rule_id,
        "state": rule.state or "gone",
        "alerts": alerts_text(rule),
        "judged": f"{rule.judged:,}",
        "fraud": f"{rule.verdicts['fraud']:,}",
        "legitimate": f"{rule.verdicts['legitimate']:,}",
        "unclear": f"{rule.verdicts['unclear']:,}",
        "by_event": f"{rule.by_event:,}",
        "precision": rule.fraud_of_judged,
        "precision_text": _text(rule.fraud_of_judged),
        "precision_interval": interval_text(rule.fraud_of_judged),
        "is_precise": rule.judged >= report.thresholds.verdicts,
        "recall": rule.caught_of_confirmed,
        "recall_text": _text(rule.caught_of_confirmed),
        "recall_interval": interval_text(rule.caught_of_confirmed),
        "caught": f"{rule.caught:,}",
        "alone": f"{rule.caught_alone:,}",
        "amount_caught": readable(rule.amount_caught) if report.measure else "",
        "amount_missed": readable(rule.amount_missed) if report.measure else "",
        "keys_detected": f"{rule.detected_keys:,} of {rule.fraud_keys:,}",
        "detected": "" if rule.detect_ms is None else duration_text(rule.detect_ms),
        "decided": "" if rule.decide_ms is None else duration_text(rule.decide_ms),
        "advice": advice.what,
        "advice_class": _CLASSES.get(advice.what, ""),
        "reason": advice.reason,
    }


def _text(interval: Interval | None) -> str:
    return "" if interval is None else percent(interval.share)


def _span(report: QualityReport) -> str:
    """The event times that count, in words."""
    start, end = (None if each is None else time_text(each) for each in report.times)
    if start is None and end is None:
        return "of all time"
    return " ".join([*([f"from {start}"] if start else []), *([f"to before {end}"] if end else [])]) + " (UTC)"
