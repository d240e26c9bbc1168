"""Which topics a query reads: those that are named, and those that a regular expression matches, also later ones.

Spark finds topics by the expression as Java reads it, and this program by that of Python. Both read what
`check_pattern` lets pass alike; they compare it with the whole name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

_READ_ALIKE = re.compile(
    r"""(?: [A-Za-z0-9._^$|*+?)!=<:,-]        # names, alternatives, repetition, and what follows a group's `(?`
          | \\[.dDwW-]
          | \((?!\?) | \(\?(?:[:=!]|<[=!])
          | \{\d+(?:,\d*)?\}
          | \[\^?(?:[A-Za-z0-9._*+?|()$,-]|\\[.dDwW-])+\]
        )*""",
    re.VERBOSE,
)
_OF_KAFKA = "__"
"""How names of Kafka's own topics begin, which no expression matches."""


def check_pattern(text: str) -> str:
    """Return a regular expression, if it is one that Java and Python read alike.

    Raises:
        ValueError: it is not; says why.
    """
    if not text or not _READ_ALIKE.fullmatch(text):
        message = (
            rf"{text!r} is more than names of topics need: write it with letters, digits, `. _ - * + ? | ^ $`, groups, "
            r"classes in `[ ]`, counts in `{ }`, `\d`, `\w` and `\.`, as in 'payments-.*'"
        )
        raise ValueError(message)
    try:
        re.compile(text)
    except re.error as error:
        message = f"{text!r} is no regular expression: {error}; correct it, as in 'payments-.*'"
        raise ValueError(message) from None
    return text


@dataclass(frozen=True)
class TopicSelection:
    """Topics that a query reads.

    Attributes:
        names: those that are named.
        pattern: a regular expression of the whole name of others; None for none.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None

    @cached_property
    def expression(self) -> str:
        """The regular expression of all topics, for the whole name."""
        named = [re.escape(name) for name in self.names]
        by_pattern = [] if self.pattern is None else [f"(?!{_OF_KAFKA})(?:{self.pattern})"]
        return f"^(?:{'|'.join([*named, *by_pattern])})$"

    def matches(self, topic: str) -> bool:
        """Return whether the pattern matches a topic."""
        if self.pattern is None or topic.startswith(_OF_KAFKA):
            return False
        return re.fullmatch(self.pattern, topic) is not None

    def of(self, topics: Iterable[str]) -> list[str]:
        """Return the named topics and those of some others that the pattern matches, by name."""
        return sorted({*self.names, *filter(self.matches, topics)})
