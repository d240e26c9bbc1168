"""Whether an event is the last of some steps that came in their order."""

from collections.abc import Mapping, Sequence

import numpy as np

from buckets.aggregates.aggregate import Aggregate, Own, Values
from buckets.aggregates.component import SEQUENCE, Component, Computed
from buckets.aggregates.plain import CountedEvents, PlainValue

_SEQUENCE = Component(SEQUENCE)


def find_steps(passing: Sequence[Sequence[bool]], own: int) -> list[int] | None:
    """Return which events are the steps of a sequence that ends with one of them: that which begins the latest.

    Of all sequences that end there it has the fewest events between its first step and its last, so that no other one
    is without an event that must not come, if this one is not.

    Args:
        passing: by event, by time and those of one time as they arrived, which steps it passes; and behind these
            whether it is one that must not come between the first step and the last.
        own: the event that is the last step.

    Returns:
        The events, one for each step; None where there is no such sequence.
    """
    found: list[int] = []
    at = own + 1
    for step in reversed(range(len(passing[own]) - 1)):
        if step == len(passing[own]) - 2:
            at = own if passing[own][step] else -1
        else:
            at = next((event for event in reversed(range(at)) if passing[event][step]), -1)
        if at < 0:
            return None
        found.insert(0, at)
    return None if any(passing[event][-1] for event in range(found[0] + 1, own)) else found


class _Sequence(Aggregate):
    description = (
        "Whether this event is the last of `steps` that came in their order, and none that is `without` came between: "
        "true or false."
    )
    phrase = "whether there came in this order"
    takes = ()
    null_when = "never"
    is_boolean = True
    needs_raw_events = True
    needs_steps = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_SEQUENCE,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        found = computed[_SEQUENCE]
        everywhere = np.ones(len(found.whole), np.bool_)
        return Values(
            scaled=found.whole,
            scale=0,
            valid=everywhere,
            lower=found.lower_whole,
            upper=found.upper_whole,
            may_be_null=~everywhere,
            exact=found.exact,
            kind="boolean",
        )

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        is_last = events.own is not None and find_steps(events.values, events.own) is not None
        return PlainValue(is_last, is_last)


AGGREGATES: dict[str, Aggregate] = {"sequence": _Sequence()}
