"""What is looked at: rules, and all that is known about the events and the job for which they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.lint.event_summary import EventSummary
from buckets.lint.facts import firing_facts
from buckets.lint.logic import Facts
from buckets.rules.filter import Filter
from buckets.rules.rule import Rule


@dataclass(frozen=True)
class FilterAt:
    """A filter of a rule, or of one of its features, and where in the rule it is."""

    rule: Rule
    path: tuple[str, ...]
    where: Filter
    feature: str | None = None


@dataclass(frozen=True)
class Subject:
    """What is looked at.

    Attributes:
        rules: valid rules, without deleted ones.
        now_ms: the time, in ms since the epoch.
        schema: the event schema, if it is known.
        engine: the settings of a job, if they are known.
        events: what a file of events has shown, if there is one.
        written: for each rule the fields that its file names, which tells a default from one that somebody wrote.
    """

    rules: tuple[Rule, ...]
    now_ms: int
    schema: EventSchema | None = None
    engine: EngineSettings | None = None
    events: EventSummary | None = None
    written: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def schema_of(self, rule: Rule) -> EventSchema | None:
        """Return the event schema of what a rule counts: that of events does not hold for alerts."""
        return self.schema if rule.on == "events" else None

    @cached_property
    def firing_facts(self) -> Mapping[str, Facts | None]:
        """By rule, what is known of fields and features where it is evaluated; None where no event can pass."""
        return {rule.rule_id: firing_facts(rule, self.schema_of(rule), self.engine) for rule in self.rules}

    def filters(self) -> Iterator[FilterAt]:
        """Yield all filters that are written, each of a rule or of a feature."""
        for rule in self.rules:
            if rule.where:
                yield FilterAt(rule, ("where",), rule.where)
            for name, feature in rule.features.items():
                if feature.where:
                    yield FilterAt(rule, ("features", name, "where"), feature.where, name)
