"""The page of `buckets rules quality`: each rule with its numbers and bars; its words stand on the terminal too."""

from buckets.duration import spoken_duration
from buckets.moment import time_text
from buckets.numbers.fixed_point import readable, short_percent_text
from buckets.pages.page import render
from buckets.printable import one_line
from buckets.verdicts.quality import RuleQuality
from buckets.verdicts.report import QualityReport
from buckets.verdicts.verdict import ShareInterval


def quality_page(report: QualityReport) -> str:
    """Return the page of a report: self-contained HTML."""
    return render(
        "quality.html",
        report=report,
        span=_span(report),
        remarks=remarks(report),
        least=report.thresholds.verdicts,
        is_decided=any(rule.decide_ms is not None for rule, _ in report.rules),
        alerts_text=alerts_text,
        interval_text=interval_text,
        percent=short_percent_text,
        readable=readable,
        spoken_duration=spoken_duration,
    )


def _span(report: QualityReport) -> str:
    """Say which event times count."""
    start, end = (None if time is None else time_text(time) for time in report.times)
    if start is None and end is None:
        return "of all time"
    return " ".join([*([f"from {start}"] if start else []), *([f"to before {end}"] if end else [])]) + " (UTC)"


def alerts_text(rule: RuleQuality) -> str:
    """Return the alerts of a rule; those on trial and those that were held back on lines of their own."""
    lines = [f"{rule.alerts:,}"] if rule.alerts or not rule.shadow_alerts else []
    lines += [f"{rule.shadow_alerts:,} on trial"] if rule.shadow_alerts else []
    return "\n".join([*lines, *([f"{rule.held_alerts:,} held"] if rule.held_alerts else [])])


def interval_text(interval: ShareInterval | None) -> str:
    """Say between which bounds a share lies; nothing where there is none."""
    return "" if interval is None else f"{short_percent_text(interval.low)} to {short_percent_text(interval.high)}"


def remarks(report: QualityReport) -> list[str]:
    """Say in sentences what the numbers leave out, and how long decisions took."""
    lines = []
    decided = [(rule.rule_id, rule.decide_ms) for rule, _ in report.rules if rule.decide_ms is not None]
    if decided:
        waits = ", ".join(f"{rule_id} {spoken_duration(wait_ms)}" for rule_id, wait_ms in decided)
        lines.append(one_line(f"from an event's time to its decision (median): {waits}"))
    held = [(rule.rule_id, rule.caught_held) for rule, _ in report.rules if rule.caught_held]
    if held:
        missed = ", ".join(f"{rule_id} {count:,}" for rule_id, count in held)
        lines.append(one_line(f"frauds at which a rule fired and its alert was held back, counted as missed: {missed}"))
    if report.without_time:
        lines.append(f"{report.without_time:,} frauds are left out, for it is not known when they happened")
    if report.without_amount and report.measure:
        lines.append(f"of {report.without_amount:,} frauds no {report.measure} is known")
    return lines
