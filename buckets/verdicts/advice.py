"""What to do with a rule by its verdicts: keep it, tune it or retire it. A rule of thumb, with the reason in words."""

from dataclasses import dataclass
from typing import Literal

from buckets.numbers.figures import short_percent_text
from buckets.verdicts.quality import RuleQuality

What = Literal["keep", "tune", "retire", "not enough verdicts"]


@dataclass(frozen=True)
class Thresholds:
    """What the advice goes by.

    Attributes:
        verdicts: how many alerts must have turned out to be fraud or legitimate.
        keep: a rule whose precision is at least this, with 95 % confidence, is kept.
        retire: one whose precision is below this, likewise, and which has caught nothing alone, is retired.
    """

    verdicts: int = 20
    keep: float = 0.3
    retire: float = 0.1


@dataclass(frozen=True)
class Advice:
    """What to do with a rule."""

    what: What
    reason: str


def advise(rule: RuleQuality, thresholds: Thresholds) -> Advice:
    """Return what to do with a rule."""
    precision, judged = rule.fraud_of_judged, rule.judged
    if precision is None or judged < thresholds.verdicts:
        return Advice("not enough verdicts", f"{_judged(rule)}; {thresholds.verdicts:,} are needed")
    judgement = f"{rule.verdicts['fraud']:,} of {judged:,} were fraud: with 95 % confidence"
    keep, retire = short_percent_text(thresholds.keep), short_percent_text(thresholds.retire)
    if precision.low >= thresholds.keep:
        return Advice("keep", f"{judgement} at least {short_percent_text(precision.low)}, and {keep} is asked for")
    alone = {0: "no fraud", 1: "one fraud"}.get(rule.caught_alone, f"{rule.caught_alone:,} frauds")
    if precision.high >= thresholds.retire:
        between = f"{short_percent_text(precision.low)} to {short_percent_text(precision.high)}"
        return Advice("tune", f"{judgement} {between}, and at least {keep} is asked for; it caught {alone} alone")
    below = f"{judgement} at most {short_percent_text(precision.high)}, and {retire} is the least"
    if rule.caught_alone:
        return Advice("tune", f"{below}; but it caught {alone} alone")
    return Advice("retire", f"{below}; it caught {alone} alone")


def _judged(rule: RuleQuality) -> str:
    """Return how many alerts of a rule turned out to be something."""
    fired = rule.alerts + rule.shadow_alerts
    return f"{rule.judged:,} of {fired:,} alerts are fraud or legitimate" if fired else "it has no alerts"
