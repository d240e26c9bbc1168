"""Features that look at single events need these as they were: their windows must lie in the tail."""

from collections.abc import Iterable

from buckets.config.engine import EngineSettings
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.rules.group import canonical_group_id
from buckets.rules.rule import Rule


def raw_window_fault(rule: Rule, engine: EngineSettings, schema: EventSchema) -> str | None:
    """Return what is wrong with a rule whose features look further back than events are kept raw; None if nothing is.

    Args:
        rule: the rule, which fits the event schema.
        engine: the settings of the job.
        schema: the event schema.
    """
    if rule.on == "alerts":  # These are few, and all of them are kept raw.
        return None
    for named in rule.named_features():
        feature = named.feature
        if not (rule.reset_on_alert or feature.aggregate.needs_raw_events):
            continue
        precision = engine.precision.of_group(canonical_group_id(named.fields, named.group_where, schema), schema)
        if precision.tail is not None and feature.window.reach_ms > precision.tail:
            why = f"features.{named.name}.window: {feature.function} looks at single events, which"
            if rule.reset_on_alert:
                why = "reset_on_alert: the window may begin at any event, and these"
            return (
                f"{why} are kept for {format_duration(precision.tail)} (engine.precision.tail); shorten the window or "
                "lengthen the tail"
            )
    return None


def check_raw_windows(origin: str, rules: Iterable[Rule], engine: EngineSettings, schema: EventSchema) -> None:
    """See that no rule looks further back than events are kept raw.

    Args:
        origin: where the settings come from, for the error.
        rules: the rules.
        engine: the settings of the job.
        schema: the event schema.

    Raises:
        BucketsError: one does.
    """
    for rule in rules:
        fault = raw_window_fault(rule, engine, schema)
        if fault is not None:
            message = f"{origin}: rule {rule.rule_id!r}: {fault}"
            raise BucketsError(message)
