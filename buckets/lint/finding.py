"""A finding: what is wrong with a rule, in which field, and by which code people look it up and silence it."""

from dataclasses import dataclass
from typing import Literal

from buckets.rules.rule import Rule

Level = Literal["error", "warning", "note"]
Needs = Literal["schema", "engine", "events", "silence"]


@dataclass(frozen=True)
class Code:
    """A kind of finding.

    Attributes:
        code: its stable name, as in B101.
        level: how bad it is: an error makes a rule useless, a warning is hardly what was meant, a note is worth a look.
        title: what is found, in a few words.
        message: what, why, and what to do, in one line, with the names of values in braces.
        needs: what it cannot be found without; `silence` where it is about silencing, and cannot be silenced.
        said_by: codes that say the same and more: where one is found in a rule, this one is left out.
    """

    code: str
    level: Level
    title: str
    message: str
    needs: frozenset[Needs] = frozenset()
    said_by: frozenset[str] = frozenset()

    def at(self, rule: Rule, path: tuple[str, ...], **values: object) -> "Finding":
        """Return a finding in a field of a rule, with the values that its message names."""
        return Finding(self, rule.rule_id, path, self.message.format(**values))


@dataclass(frozen=True)
class Finding:
    """Something that was found.

    Attributes:
        code: what kind of thing.
        rule_id: in which rule.
        path: in which of its fields, as in `("features", "recent", "window")`.
        message: what, why, and what to do, in one line.
    """

    code: Code
    rule_id: str
    path: tuple[str, ...]
    message: str

    @property
    def said_by(self) -> set[tuple[str, str]]:
        """Findings that say the same and more, by rule and code."""
        return {(self.rule_id, code) for code in self.code.said_by}
