"""Terms: the features of a rule at an event, as JSON text."""

import json
from collections.abc import Sequence
from typing import Any

from buckets.duration import format_duration
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import write_filter
from buckets.rules.rule import Rule

JSON_FLAG = {True: "true", False: "false"}


def term_start(rule: Rule, named: NamedFeature) -> str:
    """Return the beginning of a feature's term, which is the same at all events; what is the rule's is left out."""
    feature = named.feature
    fixed: dict[str, Any] = {"name": named.name, "function": feature.function}
    fixed |= {"of": feature.of} if feature.of is not None else {}
    fixed |= {"p": format(feature.p, "f")} if feature.p is not None else {}
    fixed["window"] = format_duration(feature.window.length_ms)
    fixed |= {"where": write_filter(named.where)} if named.where != rule.where else {}
    fixed |= {"group_by": list(named.fields)} if frozenset(named.fields) != frozenset(rule.group_by) else {}
    return json.dumps(fixed, ensure_ascii=False).removesuffix("}")


def term_end(value: str, bounds: Sequence[str] | None, may_be_null: bool, count: int, is_warm: bool) -> str:
    """Return the rest of a term.

    Args:
        value: at the event, as JSON text.
        bounds: the least and the greatest that it can be, as JSON text; None where it is exact.
        may_be_null: whether it may be NULL, where it is not exact.
        count: how many events it is of.
        is_warm: whether nothing that its window needs can be missing.
    """
    uncertain = ""
    if bounds is not None:
        uncertain = f', "lower": {bounds[0]}, "upper": {bounds[1]}' + (', "may_be_null": true' if may_be_null else "")
    flags = f'"exact": {JSON_FLAG[bounds is None]}, "count": {count}, "warm": {JSON_FLAG[is_warm]}'
    return f', "value": {value}{uncertain}, {flags}}}'
