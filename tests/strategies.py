"""Random streams, rules and settings: dense in ties, window edges, late and repeated events."""

from decimal import Decimal

from hypothesis import strategies as st

from buckets.aggregates.registry import SHORT_FUNCTIONS
from buckets.duration import format_duration
from buckets.events.schema import EventSchema
from buckets.rules.rule import Rule
from buckets.timeline.tiers import Paging
from tests.oracle import Event

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"k": "string"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}},
    }
)
MEASURES = {name: measure.scale for name, measure in SCHEMA.measures.items()}
LENGTHS_MS = [1, 2, 5, 10, 25, 50, 100, 200]
WINDOW_ENDS = [{}, {}, {}, {"exclude": "current"}, *({"offset": offset} for offset in ("1ms", "4ms", "30ms"))]
"""Where windows end: with their event, which most do, before it, or so much earlier."""
EDGES = st.sampled_from(["include", "exclude", "prorate"])
WIDE_STEPS_MS = [0, 0, 1, 1, 2, 4, 5, 9, 10, 49, 50, 51, 99, 100, 101, -1, -2, -5, -50, -120, -300]
CLOSE_STEPS_MS = [0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 11, 16, -1, -1, -2, -5, -11, -30, -70]


def decimals(scale: int):
    small = st.integers(-500, 500)
    large = st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63)])
    return st.one_of(small, small, small, large).map(lambda n: Decimal(n).scaleb(-scale))


def small_decimals(scale: int, least: int = -500):
    return st.integers(least, 500).map(lambda n: Decimal(n).scaleb(-scale))


def rules(min_size: int = 1, max_size: int = 8, lengths_ms: list[int] = LENGTHS_MS, resets: bool = False):
    def build(
        index: int,
        function: str,
        measure: str,
        length_ms: int,
        left: str,
        operator: str,
        limit: Decimal,
        state: str,
        is_reset: bool,
        end: dict[str, str],
    ):
        return Rule.model_validate(
            {
                "rule_id": f"r{index}",
                "state": state,
                "group_by": ["k"],
                "aggregate": {"function": function, "measure": measure},
                "window": {"length": format_duration(length_ms), "left": left, **({} if is_reset else end)},
                "limit": {"operator": operator, "value": str(limit)},
                "reset_on_alert": is_reset,
            }
        )

    parts = st.tuples(
        st.sampled_from(SHORT_FUNCTIONS),
        st.sampled_from(["amount", "fee"]),
        st.sampled_from(lengths_ms),
        st.sampled_from(["closed", "open"]),
        st.sampled_from([">", ">=", "<", "<=", "=", "!="]),
        st.integers(-3000, 3000).map(lambda n: Decimal(n).scaleb(-3)),
        st.sampled_from(["ACTIVE", "ACTIVE", "SHADOW", "PAUSE"]),
        st.sampled_from([False, resets]),
        st.sampled_from(WINDOW_ENDS),
    )
    return st.lists(parts, min_size=min_size, max_size=max_size).map(
        lambda many: [build(index, *each) for index, each in enumerate(many)]
    )


def streams(
    keys: int = 2,
    max_size: int = 80,
    overflowing: bool = True,
    repeating: bool = True,
    least: int = -500,
    latest_ms: int | None = None,
    nulls: bool = True,
):
    """Events in arrival order, most of them of the first key. Steps of 0 collide, negative ones are late.

    Left alone, hypothesis draws lists of five; timelines with pages and buckets take more.

    Args:
        keys: how many keys.
        max_size: how many events at most.
        overflowing: whether some amounts are so large that sums overflow.
        repeating: whether some events arrive twice.
        least: the least of the amounts that are not large, scaled.
        latest_ms: how late an event may be; None for as late as it comes.
        nulls: whether some events of some streams have no amount, no fee, or neither.
    """
    amount = decimals(2) if overflowing else small_decimals(2, least)
    repeat = st.sampled_from([*[0] * 14, 1, 2] if repeating else [0])

    def part(steps_ms: list[int]):
        possible = [step_ms for step_ms in steps_ms if latest_ms is None or step_ms >= -latest_ms]
        key = st.sampled_from([0] * 2 * keys + list(range(keys)))
        missing = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3])
        return st.tuples(key, st.sampled_from(possible), amount, small_decimals(0, least), repeat, missing)

    def build(start_ms: int, with_nulls: bool, parts: list) -> list[Event]:
        events: list[Event] = []
        clock_ms = start_ms
        for index, (key, forward_ms, value, fee, back, missing) in enumerate(parts):
            if back and len(events) >= back:
                if latest_ms is None or clock_ms - events[-back].time_ms <= latest_ms:
                    events.append(events[-back])
                continue
            time_ms = clock_ms + forward_ms
            clock_ms = max(clock_ms, time_ms)
            amount, fee = None if with_nulls and missing & 1 else value, None if with_nulls and missing & 2 else fee
            events.append(Event(f"é{index}" if index % 7 == 0 else f"e{index}", time_ms, f"k{key}", (amount, fee)))
        return events

    def parts(chosen: tuple[int, list[int]]):
        fewest, steps_ms = chosen
        return st.lists(part(steps_ms), min_size=min(fewest, max_size), max_size=max_size)

    shapes = st.tuples(
        st.sampled_from([0, 20, 40, 60]), st.sampled_from([WIDE_STEPS_MS, CLOSE_STEPS_MS, CLOSE_STEPS_MS])
    )
    starts_ms, with_nulls = st.sampled_from([-1_000, 0, 1_700_000_000_000]), st.sampled_from([False, nulls])
    return st.builds(build, starts_ms, with_nulls, shapes.flatmap(parts))


def cuts():
    """Where a stream is cut into micro-batches: nowhere, here and there, or after every event."""
    index = st.integers(0, 80)
    return st.one_of(st.lists(index, max_size=8), st.lists(index, min_size=8, max_size=40), st.just(list(range(81))))


def pagings():
    """Pages of few cells, so that short streams have many, and more than there may be.

    Where there may be fewer than 16 a batch is rarely cut into pages at all.
    """
    return st.builds(
        Paging,
        page_cells=st.sampled_from([1, 1, 2, 2, 3, 4, 8]),
        hot_cells=st.integers(0, 4),
        most_pages=st.sampled_from([2, 5, 16, 16, 16, 24]),
    )


@st.composite
def precisions(draw, shortest_tail_ms: int = 0, edges=EDGES):
    """Buckets after a tail, and up to two tiers of wider ones, as written in a configuration."""
    tail_ms = shortest_tail_ms + draw(st.sampled_from([0, 1, 4, 10, 25]))
    after_ms, width_ms, tiers = tail_ms, draw(st.sampled_from([1, 2, 5, 8, 10, 20, 25])), []
    written = {"tail": f"{tail_ms}ms", "resolution": f"{width_ms}ms", "edge": draw(edges)}
    for _ in range(draw(st.integers(0, 2))):
        after_ms += draw(st.sampled_from([1, 5, 20, 60]))
        width_ms *= draw(st.sampled_from([2, 3, 5]))
        tiers.append({"after": f"{after_ms}ms", "resolution": f"{width_ms}ms"})
    return written | {"tiers": tiers}
