"""Looks for all that is wrong with rules, and sets aside what their files silence, with a reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Protocol

from buckets.lint import families
from buckets.lint.finding import Code, Finding
from buckets.lint.subject import Subject
from buckets.printable import short_line

UNKNOWN_CODE = Code("B901", "error", "a silence of a code that there is not", frozenset(["silence"]))
NO_REASON = Code("B902", "error", "a silence without a reason", frozenset(["silence"]))
IDLE_SILENCE = Code("B903", "note", "a silence that silences nothing", frozenset(["silence"]))
_OF_SILENCES = (UNKNOWN_CODE, NO_REASON, IDLE_SILENCE)


class _Family(Protocol):
    CODES: tuple[Code, ...]

    def find(self, subject: Subject) -> Iterator[Finding]:
        """The findings of its codes."""


@dataclass(frozen=True)
class Report:
    """What was found: in the order of the rules, those of one rule in the order of their codes.

    Attributes:
        findings: what somebody should see.
        silenced: what the files silence, each with the reason why nobody needs to see it.
    """

    findings: tuple[Finding, ...]
    silenced: tuple[tuple[Finding, str], ...]


@cache
def _families() -> tuple[_Family, ...]:
    return tuple(import_module(f"{families.__name__}.{each.name}") for each in iter_modules(families.__path__))


@cache
def codes() -> dict[str, Code]:
    """All codes, in their order."""
    found = [*(code for family in _families() for code in family.CODES), *_OF_SILENCES]
    return {code.code: code for code in sorted(found, key=lambda code: code.code)}


def look(subject: Subject) -> Report:
    """Look for everything there is a code for."""
    found = [finding for family in _families() for finding in family.find(subject)]
    there = {(finding.rule_id, finding.code.code) for finding in found}
    found = [finding for finding in found if not any((finding.rule_id, code) in there for code in finding.code.said_by)]
    reasons = {rule.rule_id: rule.silence for rule in subject.rules}
    rank = {rule_id: at for at, rule_id in enumerate(reasons)}
    kept, silenced = list(_silences(subject, there)), []
    for finding in sorted(found, key=lambda finding: (rank[finding.rule_id], finding.code.code)):
        reason = reasons[finding.rule_id].get(finding.code.code, "").strip()
        if reason:
            silenced.append((finding, reason))
        else:
            kept.append(finding)
    kept.sort(key=lambda finding: (rank[finding.rule_id], finding.code.code))
    return Report(tuple(kept), tuple(silenced))


def page(code: str) -> str:
    """Return the page of a code as Markdown, with an example that has the finding and one that is mended."""
    return (files("buckets.lint") / "pages" / f"{code}.md").read_text(encoding="utf-8")


def _silences(subject: Subject, found: set[tuple[str, str]]) -> Iterator[Finding]:
    """Find what is wrong with the silences themselves."""
    # Other events may have what these have not.
    there = {name for name, each in (("schema", subject.schema), ("engine", subject.engine)) if each is not None}
    for rule in subject.rules:
        for name, reason in rule.silence.items():
            path, code = ("silence", name), codes().get(name)
            if code is None or "silence" in code.needs:
                shown = short_line(repr(name))
                message = f"{shown} is no code that can be silenced; `buckets rules check --codes` lists them"
                yield Finding(UNKNOWN_CODE, rule.rule_id, path, message)
            elif not reason.strip():
                message = f"say why {name} is silenced, as in `{name}: shown in alerts`"
                yield Finding(NO_REASON, rule.rule_id, path, message)
            elif (rule.rule_id, name) not in found and code.needs | {"schema"} <= there:
                message = f"there is no finding {name} in this rule (any more); leave the silence out"
                yield Finding(IDLE_SILENCE, rule.rule_id, path, message)
