"""What a file of events shows: filters that let nothing pass, or all, rules that never fire, or all the time."""

from collections.abc import Iterator

from buckets.lint.event_summary import EventSummary
from buckets.lint.families.groupings import FEWEST, groupings_of
from buckets.lint.finding import Code, Finding, Needs
from buckets.lint.subject import Subject
from buckets.printable import short_line
from buckets.rules.rule import Rule

_NEEDS: frozenset[Needs] = frozenset(["schema", "events"])
NONE_PASS = Code("B501", "warning", "a filter that none of the events passes", _NEEDS, frozenset(["B104"]))
ALL_PASS = Code("B502", "note", "a filter that all of the events pass", _NEEDS, frozenset(["B105"]))
NEVER_FIRES = Code("B503", "note", "a rule that fires at none of the events", _NEEDS, frozenset(["B101", "B104"]))
OFTEN_FIRES = Code("B504", "warning", "a rule that fires at a large share of the events", _NEEDS, frozenset(["B102"]))
ALWAYS_NULL = Code("B505", "warning", "a field that is null in all of the events", _NEEDS)
UNEVEN_KEYS = Code(
    "B506", "warning", "a grouping that puts most of the events on few keys", _NEEDS, frozenset(["B401"])
)
SOME_NULL = Code("B507", "note", "events that a rule does not see, because a field is null", _NEEDS)
CODES = (NONE_PASS, ALL_PASS, NEVER_FIRES, OFTEN_FIRES, ALWAYS_NULL, UNEVEN_KEYS, SOME_NULL)
_LARGE_SHARE = 0.1
"""A rule that fires at a larger share of all events fires often; nobody can look at so many."""
_MOST_ON_ONE_KEY = 0.5
FEWEST_EVENTS = 100
"""Of fewer events no shares are told."""


def find(subject: Subject) -> Iterator[Finding]:
    """Look at what the events show of each rule."""
    events = subject.events
    if events is None or not events.events:
        return
    quiet: set[str] = set()
    for each in subject.filters():
        passed = events.passed.get(each.where)
        if passed is None or each.rule.on != "events":
            continue
        if passed == 0:
            quiet |= {each.rule.rule_id} if each.feature is None else set()
            message = f"passes none of {events.events:,} events; see how the values of its fields are written"
            yield Finding(NONE_PASS, each.rule.rule_id, each.path, message)
        elif passed == events.events >= FEWEST_EVENTS:
            message = f"passes all of {events.events:,} events; leave it out if it is to let all pass"
            yield Finding(ALL_PASS, each.rule.rule_id, each.path, message)
    for rule in subject.rules:
        yield from _nulls(rule, subject, events)
        if rule.rule_id not in quiet:
            yield from _alerts(rule, events)
        yield from _keys(rule, events)


def _nulls(rule: Rule, subject: Subject, events: EventSummary) -> Iterator[Finding]:
    if rule.rule_id not in events.fired:
        return
    grouped = {field: path for path, fields, _ in groupings_of(rule) for field in fields}
    paths: dict[str, tuple[str, ...]] = dict(grouped)
    of = {name: feature.of for name, feature in rule.features.items()}
    paths |= {field: rule.written_at("features", name, "of") for name, field in of.items() if field is not None}
    # In a condition or a filter NULL can be what is asked for.
    for field, path in paths.items():
        nulls = events.nulls.get(field, 0)
        unseen = "are not seen by what groups by it" if field in grouped else "are left out of what is computed of it"
        if nulls == events.events:
            message = f"{field} is null in all of {events.events:,} events, which {unseen}; name another field"
            yield Finding(ALWAYS_NULL, rule.rule_id, path, message)
        elif nulls:
            share = f"{nulls / events.events:.2%}"
            message = (
                f"{field} is null in {nulls:,} of {events.events:,} events ({share}), which {unseen}; see whether the "
                "rule is meant for them"
            )
            yield Finding(SOME_NULL, rule.rule_id, path, message)


def _alerts(rule: Rule, events: EventSummary) -> Iterator[Finding]:
    fired = events.fired.get(rule.rule_id)
    passed = events.passed.get(rule.where, 0) if rule.where else events.events
    path = rule.written_at("when")
    if fired is None:
        return
    if fired == 0:
        passing = "events" if passed == events.events else f"events, of which {passed:,} pass its filter"
        message = (
            f"would have fired at 0 of {events.events:,} {passing}; see whether it is too strict, or the events too few"
        )
        yield Finding(NEVER_FIRES, rule.rule_id, path, message)
    elif events.events >= FEWEST_EVENTS and fired > _LARGE_SHARE * events.events:
        message = (
            f"would have fired at {fired:,} of {events.events:,} events ({fired / events.events:.0%}); make it "
            "stricter, or give it a cooldown"
        )
        yield Finding(OFTEN_FIRES, rule.rule_id, path, message)


def _keys(rule: Rule, events: EventSummary) -> Iterator[Finding]:
    for path, fields, _ in groupings_of(rule):
        found = events.keys.get(tuple(sorted(fields)))
        if found is None or found.events < FEWEST_EVENTS:
            continue
        share = found.largest / found.events
        if found.keys >= FEWEST and share <= _MOST_ON_ONE_KEY:
            continue
        largest = short_line(", ".join(map(str, found.largest_key)))
        keys = "one key" if found.keys == 1 else f"{found.keys:,} keys"
        message = (
            f"{found.events:,} events have {keys}, and {largest} has {share:.0%} of them; one core scores a key's "
            "events one after the other: group by a field with more values too, or filter the largest out"
        )
        yield Finding(UNEVEN_KEYS, rule.rule_id, path, message)
