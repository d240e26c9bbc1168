"""What is wrong with rules that can be read: names that mislead, and what does not fit the event schema."""

from collections.abc import Iterable, Iterator

from buckets.events.schema import EventSchema
from buckets.printable import blank_letter, misleading_character, short_line, unseen_character
from buckets.rules.alert_schema import schema_on
from buckets.rules.condition import check_condition_fits
from buckets.rules.feature import field_kind
from buckets.rules.filter import Filter, canonical_filter, filter_fields
from buckets.rules.policy import tag_fault
from buckets.rules.rule import LARGEST_VERSION, VARIANT_MARK, Rule
from buckets.rules.sql_filter import SqlFilter

Fault = tuple[tuple[str, ...], str]
"""The location of a field in a rule, and what is wrong with it."""


def check_new(rule: Rule) -> Fault | None:
    """Return what a new rule may not be called or contain, if anything; rules in a checkpoint are not checked again.

    The keys of changes in a topic begin with `!`, and names appear in messages, tables and terminals.
    """
    name = rule.rule_id
    location: tuple[str, ...] = ("rule_id",)
    if name.startswith(VARIANT_MARK):
        return location, f"{name!r} begins with !, as only the keys of changes do; give the rule another name"
    if name.strip() != name:
        return location, f"{name!r} begins or ends with a blank; leave it out"
    if not name.isprintable():
        return location, f"{name!r} holds a character that is neither visible nor a plain blank; leave it out"
    unseen = blank_letter(name)
    if unseen is not None:
        return location, f"holds {unseen}, which cannot be seen; leave it out"
    if rule.version > LARGEST_VERSION:
        return ("version",), f"{rule.version} is more than {LARGEST_VERSION}; write a smaller one"
    texts: list[tuple[tuple[str, ...], str, str]] = [(("group_by",), field, "") for field in rule.group_by]
    filters: list[tuple[tuple[str, ...], Filter]] = [(("where",), rule.where), (("when",), rule.when)]
    for name, feature in rule.features.items():
        texts += [(("features", name, "group_by"), field, "") for field in feature.group_by or ()]
        filters.append((("features", name, "where"), feature.where or ()))
        texts += [(rule.written_at("features", name, "of"), feature.of or "", "")]
    for location, where in filters:
        fault = _filter_fault(where)
        if fault is not None:
            return location, fault
    for index, tag in enumerate(rule.tags):
        fault = tag_fault(tag)
        if fault is not None:
            return ("tags", str(index)), fault
        texts.append((("tags", str(index)), tag, ""))
    for policy in rule.policies:
        texts += [((policy.field, *within), text, "\n\t") for within, text in policy.texts()]
    for location, text, allowed in [*texts, (("description",), rule.description, "\n\t")]:
        unseen = unseen_character(text, allowed)
        if unseen is not None:
            return location, f"holds {unseen}, which cannot be seen; leave it out"
    return None


def _filter_fault(where: Filter) -> str | None:
    """Return what a filter, or a condition, holds that nobody can see, if anything."""
    texts = [where.text] if isinstance(where, SqlFilter) else [text for test in where for text in test.operands]
    characters = [*map(unseen_character, filter_fields(where)), *map(misleading_character, texts)]
    unseen = next((character for character in characters if character is not None), None)
    return None if unseen is None else f"holds {unseen}, which cannot be seen; leave it out"


def check_against_schema(rule: Rule, schema: EventSchema) -> Fault | None:
    """Return what does not fit the event schema, if anything; a rule over alerts has to fit that of alerts."""
    try:
        counted = schema_on(rule.on, schema)
    except ValueError as error:
        return ("on",), str(error)
    return next(_faults(rule, counted), None)


def _faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    yield from _grouping_faults(rule.group_by, ("group_by",), schema)
    if rule.aggregate is not None and rule.aggregate.measure is not None:
        measure = rule.aggregate.measure
        if measure not in schema.measures:
            known = f"declared measures: {', '.join(schema.measures) or 'none'}"
            shown = short_line(repr(measure))
            yield ("aggregate", "measure"), f"{shown} is no measure of event schema {schema.name!r}; {known}"
    yield from _filter_faults(rule.where, ("where",), schema)
    if not rule.is_short:
        yield from _feature_faults(rule, schema)
    for policy in rule.policies:
        for within, fault in policy.faults(rule.group_by, schema):
            yield (policy.field, *within), fault


def _feature_faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    for name, feature in rule.features.items():
        location = ("features", name)
        if name in schema.field_names:
            yield location, f"{name} is also a field of event schema {schema.name!r}; give the feature another name"
        yield from _grouping_faults(feature.group_by or (), (*location, "group_by"), schema)
        yield from _filter_faults(feature.where or (), (*location, "where"), schema)
        takes = feature.aggregate.takes
        declared = [each for each in (*schema.attributes, *schema.measures) if field_kind(each, schema) in takes]
        if feature.of is not None and feature.of not in declared:
            shown, known = short_line(repr(feature.of)), ", ".join(declared) or "none"
            kinds = "field" if len(takes) > 2 else "number"
            reason = f"{shown} is no {kinds} of event schema {schema.name!r}; {feature.function} can be of: {known}"
            if feature.of in schema.arrays:
                reason = f"{shown} is an array; {feature.function} can be of: {known}"
            yield (*location, "of"), reason
    are_boolean = {name: feature.aggregate.is_boolean for name, feature in rule.features.items()}
    try:
        check_condition_fits(rule.when, are_boolean, schema)
    except ValueError as error:
        yield ("when",), short_line(str(error))


def _grouping_faults(fields: Iterable[str], location: tuple[str, ...], schema: EventSchema) -> Iterator[Fault]:
    declared = f"declared attributes: {', '.join(schema.attributes) or 'none'}"
    for field in fields:
        if field not in schema.attributes:
            shown = short_line(repr(field))
            reason = "an array" if field in schema.arrays else f"no attribute of event schema {schema.name!r}"
            yield location, f"{shown} is {reason}; {declared}"


def _filter_faults(where: Filter, location: tuple[str, ...], schema: EventSchema) -> Iterator[Fault]:
    try:
        canonical_filter(where, schema)
    except ValueError as error:
        yield location, short_line(str(error))
