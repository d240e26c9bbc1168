"""The quality of rules in words and figures, as the table on the terminal and the page show it."""

from buckets.printable import one_line
from buckets.verdicts.advice import percent
from buckets.verdicts.interval import Interval
from buckets.verdicts.quality import RuleQuality
from buckets.verdicts.report import QualityReport


def alerts_text(rule: RuleQuality) -> str:
    """The alerts of a rule; those on trial and those that were held back on lines of their own."""
    lines = [f"{rule.alerts:,}"] if rule.alerts or not rule.shadow_alerts else []
    lines += [f"{rule.shadow_alerts:,} on trial"] if rule.shadow_alerts else []
    return "\n".join([*lines, *([f"{rule.held_alerts:,} held"] if rule.held_alerts else [])])


def interval_text(interval: Interval | None) -> str:
    """Between what a share lies; nothing where there is none."""
    return "" if interval is None else f"{percent(interval.low)} to {percent(interval.high)}"


def duration_text(duration_ms: float) -> str:
    """A duration as people say it, with the two largest units that it has."""
    left, parts = abs(round(duration_ms / 1000)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count:,} {unit}")
    text = " ".join(parts[:2])
    return f"{'-' if duration_ms < 0 else ''}{text}" if text else f"{duration_ms / 1000:.3g} s"


def remarks(report: QualityReport) -> list[str]:
    """Say in sentences what the numbers leave out, and how long decisions took."""
    lines = []
    decided = [(rule.rule_id, rule.decide_ms) for rule, _ in report.rules if rule.decide_ms is not None]
    if decided:
        said = ", ".join(f"{rule_id} {duration_text(wait_ms)}" for rule_id, wait_ms in decided)
        lines.append(one_line(f"from an event's time to its decision (median): {said}"))
    held = [(rule.rule_id, rule.caught_held) for rule, _ in report.rules if rule.caught_held]
    if held:
        said = ", ".join(f"{rule_id} {count:,}" for rule_id, count in held)
        lines.append(one_line(f"frauds at which a rule fired and its alert was held back, counted as missed: {said}"))
    if report.without_time:
        lines.append(f"{report.without_time:,} frauds are left out, for it is not known when they happened")
    if report.without_amount and report.measure:
        lines.append(f"of {report.without_amount:,} frauds no {report.measure} is known")
    return lines
