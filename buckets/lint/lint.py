"""Finds all faults of rules, and separates those that their files silence, with a reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from buckets.lint import conditions, copies, events, settings
from buckets.lint.subject import Code, Finding, Needs, Subject
from buckets.printable import short_line

_OF_SILENCES: frozenset[Needs] = frozenset(["silence"])
UNKNOWN_CODE = Code(
    "B901", "{shown} is not a code that can be silenced; `buckets rules check --codes` lists them", _OF_SILENCES
)
NO_REASON = Code("B902", "say why {name} is silenced, as in `{name}: shown in alerts`", _OF_SILENCES)
IDLE_SILENCE = Code("B903", "there is no finding {name} in this rule (any more); leave the silence out", _OF_SILENCES)


@dataclass(frozen=True)
class Report:
    """The findings by rule and code: those to show, and those that the files silence, with their reasons."""

    findings: tuple[Finding, ...]
    silenced: tuple[tuple[Finding, str], ...]


_FAMILIES = (conditions, copies, events, settings)


@cache
def codes() -> dict[str, Code]:
    """Return all codes, in their order."""
    declared = [value for family in _FAMILIES for value in vars(family).values() if isinstance(value, Code)]
    declared += [UNKNOWN_CODE, NO_REASON, IDLE_SILENCE]
    return {code.code: code for code in sorted(declared, key=lambda code: code.code)}


def look(subject: Subject) -> Report:
    """Check a subject for all codes."""
    findings = [finding for family in _FAMILIES for finding in family.find(subject)]
    there = {(finding.rule_id, finding.code.code) for finding in findings}
    findings = [each for each in findings if there.isdisjoint((each.rule_id, code) for code in each.code.said_by)]
    reasons = {rule.rule_id: rule.silence for rule in subject.rules}
    rank = {rule_id: at for at, rule_id in enumerate(reasons)}
    kept, silenced = list(_silences(subject, there)), []
    for finding in sorted(findings, key=lambda finding: (rank[finding.rule_id], finding.code.code)):
        reason = reasons[finding.rule_id].get(finding.code.code, "").strip()
        if reason:
            silenced.append((finding, reason))
        else:
            kept.append(finding)
    kept.sort(key=lambda finding: (rank[finding.rule_id], finding.code.code))
    return Report(tuple(kept), tuple(silenced))


def _silences(subject: Subject, there_already: set[tuple[str, str]]) -> Iterator[Finding]:
    # Other events may differ.
    there = {name for name, known in (("schema", subject.schema), ("engine", subject.engine)) if known is not None}
    for rule in subject.rules:
        for name, reason in rule.silence.items():
            path, code = ("silence", name), codes().get(name)
            if code is None or "silence" in code.needs:
                yield UNKNOWN_CODE.at(rule, path, shown=short_line(repr(name)))
            elif not reason.strip():
                yield NO_REASON.at(rule, path, name=name)
            elif (rule.rule_id, name) not in there_already and code.needs | {"schema"} <= there:
                yield IDLE_SILENCE.at(rule, path, name=name)
