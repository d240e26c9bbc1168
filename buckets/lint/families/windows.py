"""Windows against what a job keeps, against the time in which a rule is in effect, and against a cooldown."""

from collections.abc import Iterator

from buckets.config.engine import raw_window_fault
from buckets.duration import format_duration
from buckets.lint.subject import Code, Finding, Subject
from buckets.moment import moment_ms
from buckets.rules.rule import Rule

BEYOND_TAIL = Code(
    "B301",
    "error",
    "a window longer than the job keeps single events",
    "{reason}; a job with these settings refuses the rule",
    frozenset(["schema", "engine"]),
)
NEVER_WARM = Code(
    "B302",
    "warning",
    "a rule that is never warm while it is in effect",
    "needs a complete window of {window}{but} shorten the window, or leave out `require_warm`",
)
LONG_COOLDOWN = Code(
    "B303",
    "warning",
    "a cooldown longer than the window",
    "after an alert {cooldown} are quiet, and the longest window is {window}; alerts of which no event was in the "
    "alert before are kept back: shorten the cooldown, or silence this if that is meant",
)


def find(subject: Subject) -> Iterator[Finding]:
    """Look at the windows of each rule."""
    for rule in subject.rules:
        schema = subject.schema_of(rule)
        if subject.engine is not None and schema is not None:
            fault = raw_window_fault(rule, subject.engine, schema)
            if fault is not None:
                field, _, reason = fault.partition(": ")
                yield BEYOND_TAIL.at(rule, tuple(field.split(".")), reason=reason)
        yield from _warmth(rule, subject)
        longest_ms = rule.longest_window.length_ms
        if rule.cooldown is not None and rule.cooldown > longest_ms:
            cooldown, window = format_duration(rule.cooldown), format_duration(longest_ms)
            yield LONG_COOLDOWN.at(rule, ("cooldown",), cooldown=cooldown, window=window)


def _warmth(rule: Rule, subject: Subject) -> Iterator[Finding]:
    if not rule.require_warm:
        return
    window_ms = rule.longest_window.length_ms
    window, schema = format_duration(window_ms), subject.schema_of(rule)
    if rule.effective is not None and rule.effective.start is not None and rule.effective.until is not None:
        in_effect_ms = moment_ms(rule.effective.until) - moment_ms(rule.effective.start)
        if in_effect_ms <= window_ms:
            but = (
                f" and is in effect for {format_duration(in_effect_ms)}; it fires only if it is in the job well "
                f"before it is in effect: put it there {window} earlier,"
            )
            yield NEVER_WARM.at(rule, ("require_warm",), window=window, but=but)
    elif schema is not None:
        times = schema.event_time
        if times.latest_ms - times.earliest_ms <= window_ms:
            taken = format_duration(times.latest_ms - times.earliest_ms)
            but = f", and the event schema takes events of {taken} only (earliest, latest);"
            yield NEVER_WARM.at(rule, ("require_warm",), window=window, but=but)
