"""The lists of a job: where each comes from, and a check that the lists of rules are there."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, Protocol

from pydantic import Field

from buckets.config.environment import Settings
from buckets.config.kafka import TopicName
from buckets.expressions.expression import LIST_NAME
from buckets.lists.index import key_fault
from buckets.lists.keys import MOST_PARTS, KeyForm, Match
from buckets.rules.rule import Rule
from buckets.validation import did_you_mean

ColumnName = Annotated[str, Field(min_length=1)]
ListName = Annotated[str, Field(pattern=f"^{LIST_NAME.pattern}$")]


class ListSettings(Settings):
    """Where a list comes from.

    Attributes:
        kind: a CSV or YAML file, a Delta table, or a compacted topic of one partition.
        path: the file or the table.
        topic: the topic: keys are those of the list, values JSON objects, or null to remove an entry.
        key: the column of a file or table that holds the key; or the columns of a key of up to four parts, which in a
            topic are the texts of a JSON array such as `["p1", "b7"]`.
        match: `cidr` if keys are networks such as 10.0.0.0/8, in which addresses are looked for.
    """

    kind: Literal["file", "delta", "kafka"]
    path: str = ""
    topic: TopicName | None = None
    key: ColumnName | Annotated[list[ColumnName], Field(min_length=1, max_length=MOST_PARTS)] = "key"
    match: Match = "text"

    @property
    def form(self) -> KeyForm:
        """What its keys are made of."""
        return KeyForm(self.parts, self.match)

    @property
    def parts(self) -> int:
        """How many columns make up a key."""
        return 1 if isinstance(self.key, str) else len(self.key)

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return self.path if self.topic is None else f"topic {self.topic}"

    def _faults(self) -> Iterator[str]:
        needed, wrong = ("topic", {"path"}) if self.kind == "kafka" else ("path", {"topic"})
        wrong |= {"key"} if self.kind == "kafka" and self.parts == 1 else set()
        if not getattr(self, needed):
            yield f"a list of kind {self.kind} needs `{needed}`"
        for name in sorted(self.model_fields_set & wrong):
            yield f"{name}: a list of kind {self.kind} has no such field"
        if not isinstance(self.key, str) and len(set(self.key)) < self.parts:
            yield "key: a column is there twice; leave one of them out"
        if self.match == "cidr" and self.parts > 1:
            yield "key: a list of networks has one column as its key"


class Keyed(Protocol):
    """A list of which is known what its keys are made of."""

    @property
    def parts(self) -> int:
        """How many columns make up a key."""


def list_fault(rule: Rule, known: Mapping[str, Keyed | None]) -> str | None:
    """Return what is wrong with a rule that looks into a list that there is not, or by another key; None if nothing.

    Lists are known by name; None where it is not known yet what their keys are made of.
    """
    unknown = sorted(rule.lists.difference(known))
    if not unknown:
        read = ((name, parts, known[name]) for name, parts in sorted(rule.list_keys))
        faults = (key_fault(name, parts, there.parts) for name, parts, there in read if there is not None)
        return next((fault for fault in faults if fault is not None), None)
    there = ", ".join(sorted(known)) or "none"
    what_to_do = did_you_mean(unknown[0], known) or "; add it under `lists`, or correct the name"
    return f"there is no list {unknown[0]!r}; lists there: {there}{what_to_do}"


def list_faults(origin: str, rules: Iterable[Rule], known: Mapping[str, Keyed]) -> Iterator[str]:
    """Yield the rules that look into a list that there is not, or by another key."""
    for rule in rules:
        fault = list_fault(rule, known)
        if fault is not None:
            yield f"{origin}: rule {rule.rule_id!r}: {fault}"
