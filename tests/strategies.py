"""Random streams and rules: dense in ties, window edges, late and repeated events."""

from decimal import Decimal

from hypothesis import strategies as st

from buckets.duration import format_duration
from buckets.event_schema import EventSchema
from buckets.rule import Rule
from tests.oracle import Event

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"k": "string"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}},
    }
)
LENGTHS_MS = [1, 2, 5, 10, 50, 100]


def decimals(scale: int):
    small = st.integers(-500, 500)
    large = st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63)])
    return st.one_of(small, small, small, large).map(lambda n: Decimal(n).scaleb(-scale))


def small_decimals(scale: int):
    return st.integers(-500, 500).map(lambda n: Decimal(n).scaleb(-scale))


def rules(min_size: int = 1, max_size: int = 8):
    def build(
        index: int, function: str, measure: str, length_ms: int, left: str, operator: str, limit: Decimal, state: str
    ):
        return Rule.model_validate(
            {
                "rule_id": f"r{index}",
                "state": state,
                "group_by": ["k"],
                "aggregate": {"function": function, "measure": measure},
                "window": {"length": format_duration(length_ms), "left": left},
                "limit": {"operator": operator, "value": str(limit)},
            }
        )

    parts = st.tuples(
        st.sampled_from(["sum", "count", "avg", "min", "max"]),
        st.sampled_from(["amount", "fee"]),
        st.sampled_from(LENGTHS_MS),
        st.sampled_from(["closed", "open"]),
        st.sampled_from([">", ">=", "<", "<=", "=", "!="]),
        st.integers(-3000, 3000).map(lambda n: Decimal(n).scaleb(-3)),
        st.sampled_from(["ACTIVE", "ACTIVE", "SHADOW", "PAUSE"]),
    )
    return st.lists(parts, min_size=min_size, max_size=max_size).map(
        lambda many: [build(index, *each) for index, each in enumerate(many)]
    )


def streams(keys: int = 2, max_size: int = 60, overflowing: bool = True):
    """Events in arrival order. Steps of 0 collide, negative ones are late; ids repeat now and then."""
    amount = decimals(2) if overflowing else small_decimals(2)
    step = st.sampled_from([0, 0, 1, 1, 2, 4, 5, 9, 10, 49, 50, 51, 99, 100, 101, -1, -2, -5, -50, -120, -300])
    repeat = st.sampled_from([0, 0, 0, 0, 0, 1, 2])
    part = st.tuples(st.integers(0, keys - 1), step, amount, small_decimals(0), repeat)

    def build(start_ms: int, parts: list) -> list[Event]:
        events: list[Event] = []
        clock_ms = start_ms
        for index, (key, forward_ms, value, fee, back) in enumerate(parts):
            if back and len(events) >= back:
                events.append(events[-back])
                continue
            time_ms = clock_ms + forward_ms
            clock_ms = max(clock_ms, time_ms)
            events.append(Event(f"é{index}" if index % 7 == 0 else f"e{index}", time_ms, f"k{key}", (value, fee)))
        return events

    return st.builds(build, st.sampled_from([-1_000, 0, 1_700_000_000_000]), st.lists(part, max_size=max_size))
