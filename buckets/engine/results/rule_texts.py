"""What results of rules say in text: their features as JSON, one term each, and their condition in English."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from buckets.duration import format_duration
from buckets.rules.condition import condition_fields, condition_words
from buckets.rules.feature import VALUE, NamedFeature, sentence_of
from buckets.rules.filter import write_filter
from buckets.rules.rule import Rule

JSON_FLAG = {True: "true", False: "false"}


class RuleTexts(NamedTuple):
    """What all results of a rule say alike."""

    term_starts: tuple[str, ...]  # the beginnings of the terms, in the order of the features
    pieces: tuple[str, ...]  # the condition in English, cut where values stand in it
    names: tuple[str, ...]  # the features and fields whose values stand between these pieces

    @classmethod
    def of(cls, rule: Rule) -> "RuleTexts":
        """Return those of a rule."""
        starts = tuple(_term_start(rule, named) for named in rule.named_features())
        names, mark = [*rule.features, *condition_fields(rule.when, rule.features)], "#"
        while mark in rule.when.text or mark in (rule.measure or ""):
            mark += "#"
        if rule.limit is None:
            marked = {name: f"{name} ({mark}{number})" for number, name in enumerate(names)}
            sentence = condition_words(rule.when, marked)
        else:
            sentence = sentence_of(rule.features[VALUE], rule.limit, value=f"{mark}0")
        pieces = re.split(rf"{mark}(\d+)(?=\))", sentence)
        return cls(starts, tuple(pieces[::2]), tuple(names[int(number)] for number in pieces[1::2]))

    def condition(self, values: Mapping[str, str]) -> str:
        """Return the condition with the values of features and fields behind their names."""
        filled = [f"{values[name]}{piece}" for name, piece in zip(self.names, self.pieces[1:], strict=True)]
        return "".join([self.pieces[0], *filled])


def _term_start(rule: Rule, named: NamedFeature) -> str:
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
