"""The lists of a job: where each comes from, and a check that the lists of rules are there."""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from buckets.config.environment import Settings
from buckets.config.kafka import TopicName
from buckets.rules.rule import Rule
from buckets.validation import did_you_mean

ListName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]


class ListSettings(Settings):
    """Where a list comes from.

    Attributes:
        kind: a CSV or YAML file, a Delta table, or a compacted topic of one partition.
        path: the file or the table.
        topic: the topic: keys are those of the list, values JSON objects, or null to remove an entry.
        key: the column of a file or table that holds the key.
    """

    kind: Literal["file", "delta", "kafka"]
    path: str = ""
    topic: TopicName | None = None
    key: str = Field(default="key", min_length=1)

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return self.path if self.topic is None else f"topic {self.topic}"

    def _faults(self) -> Iterator[str]:
        needed, wrong = ("topic", {"path", "key"}) if self.kind == "kafka" else ("path", {"topic"})
        if not getattr(self, needed):
            yield f"a list of kind {self.kind} needs `{needed}`"
        for name in sorted(self.model_fields_set & wrong):
            yield f"{name}: a list of kind {self.kind} has no such field"


def list_fault(rule: Rule, known: Collection[str]) -> str | None:
    """Return what is wrong with a rule that looks into a list that there is not; None if nothing is."""
    unknown = sorted(rule.lists.difference(known))
    if not unknown:
        return None
    there = ", ".join(sorted(known)) or "none"
    what_to_do = did_you_mean(unknown[0], known) or "; add it under `lists`, or correct the name"
    return f"there is no list {unknown[0]!r}; lists there: {there}{what_to_do}"


def list_faults(origin: str, rules: Iterable[Rule], known: Collection[str]) -> Iterator[str]:
    """Yield the rules that look into a list that there is not."""
    for rule in rules:
        fault = list_fault(rule, known)
        if fault is not None:
            yield f"{origin}: rule {rule.rule_id!r}: {fault}"
