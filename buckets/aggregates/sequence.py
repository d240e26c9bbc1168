"""Whether an event is the last of some steps that came in their order, and which steps were not followed in time."""

from collections.abc import Mapping, Sequence

from buckets.aggregates.aggregate import Aggregate, Own, Values, as_values
from buckets.aggregates.component import SEQUENCE, Component, Computed
from buckets.aggregates.plain import CountedEvents, PlainValue

_SEQUENCE = Component(SEQUENCE)


def latest_steps(passing: Sequence[Sequence[bool]], own: int) -> list[int | None]:
    """Find the events of a sequence's steps, going back from its last step to the latest possible ones.

    Of all sequences that end with the event, this one begins latest, and has the fewest events between its first and
    its last step.

    Args:
        passing: for each event, by time and then by arrival, which steps it passes, and after these whether it must not
            come between the first and the last step.
        own: the event of the last step.

    Returns:
        The event of each step; None for a step without one, and for the steps before it.
    """
    last = len(passing[own]) - 2
    at = own if passing[own][last] else None
    found = [at]
    for step in reversed(range(last)):
        at = next((event for event in reversed(range(at or 0)) if passing[event][step]), None)
        found.insert(0, at)
    return found


def coming_between(passing: Sequence[Sequence[bool]], found: Sequence[int | None], own: int) -> list[int]:
    """Return the unwanted events that came between the first found step and the last one."""
    first = next((event for event in found if event is not None), own)
    return [event for event in range(first + 1, own) if passing[event][-1]]


class _Sequence(Aggregate):
    description = (
        "Whether this event is the last of `steps` that came in their order, and none that is `without` came between: "
        "true or false."
    )
    phrase = "whether the event completes the sequence"
    made_of = (_SEQUENCE,)
    takes = ()
    null_when = "never"
    is_boolean = True
    needs_raw_events = True
    needs_steps = 2
    needs_own_event = True

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return as_values(computed[_SEQUENCE], None, 0)._replace(kind="boolean")

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        is_last = False
        if events.own is not None:
            found = latest_steps(events.values, events.own)
            is_last = None not in found and not coming_between(events.values, found, events.own)
        return PlainValue(is_last, is_last)


def left_alone(events: CountedEvents, within_ms: int) -> list[int]:
    """Return the step events whose time expires at the event itself, and had not expired at the event before.

    Steps that the required event followed before the event itself are left out.
    """
    own, times_ms = events.own, events.times_ms
    if not own:
        return []
    answers = [event for event in range(own) if events.values[event][-1]]
    return [
        event
        for event in range(max(answers, default=0), own)
        if events.values[event][0] and times_ms[own - 1] <= times_ms[event] + within_ms < times_ms[own]
    ]


AGGREGATES: dict[str, Aggregate] = {"sequence": _Sequence()}
