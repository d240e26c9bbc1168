"""What a rule computes: its features, each with all that says how."""

from dataclasses import dataclass

from buckets.aggregates.aggregate import Aggregate
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter
from buckets.rules.rule import Rule
from buckets.rules.window import Window


@dataclass(frozen=True)
class Computation:
    """What is computed: a feature.

    Attributes:
        name: of the feature.
        aggregate: what computes it.
        of: the field; None where only events are counted.
        window: over which.
        fields: by which fields its group groups.
        group_where: the filter of its group.
        where: which events of the group it counts.
        phrase: it in English.
        tracks: what its timeline keeps for it, by name.
    """

    name: str
    aggregate: Aggregate
    of: str | None
    window: Window
    fields: tuple[str, ...]
    group_where: Filter
    where: Filter
    phrase: str
    tracks: tuple[str, ...]

    def start_ms(self, time_ms: int) -> int:
        """Return the first time that is in the window of an event."""
        return time_ms - self.window.reach_ms


def computations(rule: Rule) -> list[Computation]:
    """Return what a rule computes, in its order."""
    return [_computation(rule, named) for named in rule.named_features()]


def _computation(rule: Rule, named: NamedFeature) -> Computation:
    feature = named.feature
    return Computation(
        name=named.name,
        aggregate=feature.aggregate,
        of=None if feature.aggregate.by_value else feature.of,
        window=feature.window,
        fields=tuple(named.fields),
        group_where=named.group_where,
        where=named.counted,
        phrase=rule.phrase(named),
        tracks=tuple(dict.fromkeys(track.name for _, part in named.parts() for track in part.tracks)),
    )
