"""What to do with a rule by its verdicts: keep it, tune it or retire it. A rule of thumb, with the reason in words."""

from dataclasses import dataclass
from typing import Literal

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
    """What to do with a rule."""
    precision, judged = rule.fraud_of_judged, rule.judged
    if precision is None or judged < thresholds.verdicts:
        return Advice("not enough verdicts", f"{_judged(rule)}; {thresholds.verdicts:,} are needed")
    said = f"{rule.verdicts['fraud']:,} of {judged:,} were fraud: with 95 % confidence"
    keep, retire = percent(thresholds.keep), percent(thresholds.retire)
    if precision.low >= thresholds.keep:
        return Advice("keep", f"{said} at least {percent(precision.low)}, and {keep} is asked for")
    alone = {0: "no fraud", 1: "one fraud"}.get(rule.caught_alone, f"{rule.caught_alone:,} frauds")
    if precision.high >= thresholds.retire:
        between = f"{percent(precision.low)} to {percent(precision.high)}"
        return Advice("tune", f"{said} {between}, and at least {keep} is asked for; it caught {alone} alone")
    below = f"{said} at most {percent(precision.high)}, and {retire} is the least"
    if rule.caught_alone:
        return Advice("tune", f"{below}; but it caught {alone} alone")
    return Advice("retire", f"{below}; it caught {alone} alone")


def _judged(rule: RuleQuality) -> str:
    """How many alerts of a rule turned out to be something."""
    fired = rule.alerts + rule.shadow_alerts
    return f"{rule.judged:,} of {fired:,} alerts are fraud or legitimate" if fired else "it has no alerts"


def percent(share: float) -> str:
    """A share as people read it: with a digit after the point where that may matter, near none and near all."""
    text = f"{share * 100:.{0 if 0.2 <= share <= 0.99 else 1}f}".removesuffix(".0")
    return f"{text} %"
