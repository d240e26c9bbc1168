"""Findings from a file of events: filters that pass nothing or everything, rules that never or always fire."""

from collections.abc import Iterator

from buckets.lint.settings import FEWEST, groupings_of
from buckets.lint.subject import Code, EventSummary, Finding, Needs, Subject
from buckets.printable import short_line
from buckets.rules.rule import Rule

_NEEDS: frozenset[Needs] = frozenset(["schema", "events"])
NONE_PASS = Code(
    "B501",
    "passes none of {events:,} events; see how the values of its fields are written",
    _NEEDS,
    frozenset(["B104"]),
)
ALL_PASS = Code(
    "B502", "passes all of {events:,} events; leave it out if it is to let all pass", _NEEDS, frozenset(["B105"])
)
NEVER_FIRES = Code(
    "B503",
    "would have fired at 0 of {events:,} {passing}; see whether it is too strict, or the events too few",
    _NEEDS,
    frozenset(["B101", "B104"]),
)
OFTEN_FIRES = Code(
    "B504",
    "would have fired at {fired:,} of {events:,} events ({share:.0%}); make it stricter, or give it a cooldown",
    _NEEDS,
    frozenset(["B102"]),
)
ALWAYS_NULL = Code("B505", "{field} is null in all of {events:,} events, which {unseen}; name another field", _NEEDS)
UNEVEN_KEYS = Code(
    "B506",
    "{events:,} events have {keys}, and {largest} has {share:.0%} of them; one core scores a key's events one after "
    "the other: group by a field with more values too, or filter the largest out",
    _NEEDS,
    frozenset(["B401"]),
)
SOME_NULL = Code(
    "B507",
    "{field} is null in {nulls:,} of {events:,} events ({share:.2%}), which {unseen}; see whether the rule is meant "
    "for them",
    _NEEDS,
)
FLOATING_KEY = Code(
    "B508",
    "{field} is text, and in the events a column of type {type}, as pandas makes of integers beside a null: of whole "
    "numbers that it holds exactly the text is right, all other rows are not events; write text or integers",
    _NEEDS,
)
_LARGE_SHARE = 0.1  # Above this share of all events a rule fires too often; nobody can review so many alerts
_MOST_ON_ONE_KEY = 0.5
FEWEST_EVENTS = 100  # Below this number no shares are reported


def find(subject: Subject) -> Iterator[Finding]:
    """Check each rule against the events."""
    events = subject.events
    if events is None or not events.events:
        return
    quiet: set[str] = set()
    for filter_at in subject.filters():
        passed = events.passed.get(filter_at.where)
        if passed is None or filter_at.rule.on != "events":
            continue
        if passed == 0:
            quiet |= {filter_at.rule.rule_id} if filter_at.feature is None else set()
            yield NONE_PASS.at(filter_at.rule, filter_at.path, events=events.events)
        elif passed == events.events >= FEWEST_EVENTS:
            yield ALL_PASS.at(filter_at.rule, filter_at.path, events=events.events)
    for rule in subject.rules:
        yield from _nulls(rule, subject, events)
        if rule.rule_id not in quiet:
            yield from _alerts(rule, events)
        yield from _keys(rule, events)
        yield from _floating(rule, events)


def _floating(rule: Rule, events: EventSummary) -> Iterator[Finding]:
    for path, fields, _ in groupings_of(rule):
        for field in sorted(events.floating.keys() & set(fields)):
            yield FLOATING_KEY.at(rule, path, field=field, type=events.floating[field])


def _nulls(rule: Rule, subject: Subject, events: EventSummary) -> Iterator[Finding]:
    if rule.rule_id not in events.fired:
        return
    grouped = {field: path for path, fields, _ in groupings_of(rule) for field in fields}
    paths: dict[str, tuple[str, ...]] = dict(grouped)
    of = {name: feature.of for name, feature in rule.features.items()}
    paths |= {field: rule.written_at("features", name, "of") for name, field in of.items() if field is not None}
    # A condition or a filter may test for NULL.
    for field, path in paths.items():
        nulls = events.nulls.get(field, 0)
        unseen = "are not seen by what groups by it" if field in grouped else "are left out of what is computed of it"
        if nulls == events.events:
            yield ALWAYS_NULL.at(rule, path, field=field, events=events.events, unseen=unseen)
        elif nulls:
            counts = {"nulls": nulls, "events": events.events, "share": nulls / events.events}
            yield SOME_NULL.at(rule, path, field=field, unseen=unseen, **counts)


def _alerts(rule: Rule, events: EventSummary) -> Iterator[Finding]:
    fired = events.fired.get(rule.rule_id)
    passed = events.passed.get(rule.where, 0) if rule.where else events.events
    path = rule.written_at("when")
    if fired is None:
        return
    if fired == 0:
        passing = "events" if passed == events.events else f"events, of which {passed:,} pass its filter"
        yield NEVER_FIRES.at(rule, path, events=events.events, passing=passing)
    elif events.events >= FEWEST_EVENTS and fired > _LARGE_SHARE * events.events:
        yield OFTEN_FIRES.at(rule, path, fired=fired, events=events.events, share=fired / events.events)


def _keys(rule: Rule, events: EventSummary) -> Iterator[Finding]:
    for path, fields, _ in groupings_of(rule):
        counts = events.keys.get(tuple(sorted(fields)))
        if counts is None or counts.events < FEWEST_EVENTS:
            continue
        share = counts.largest / counts.events
        if counts.keys >= FEWEST and share <= _MOST_ON_ONE_KEY:
            continue
        largest = short_line(", ".join(map(str, counts.largest_key)))
        keys = "one key" if counts.keys == 1 else f"{counts.keys:,} keys"
        yield UNEVEN_KEYS.at(rule, path, events=counts.events, keys=keys, largest=largest, share=share)
