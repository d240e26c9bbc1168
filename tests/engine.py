"""The core driven without Spark: dictionaries for the state store, and events as in a micro-batch."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np

from buckets.byte_strings import ByteStrings
from buckets.config.engine import EngineSettings
from buckets.kernel.group_plans import join_plans
from buckets.kernel.keyed_events import KeyedEvents, no_events
from buckets.kernel.outcome import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, OVERFLOW, TOO_LATE, UNJUDGED
from buckets.kernel.plan import plan_group
from buckets.kernel.score import score_all
from buckets.numbers.fixed_point import format_scaled, to_scaled
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set, next_rule_set
from buckets.timeline.head import FROM_THE_BEGINNING
from buckets.timeline.inspection import TimelineView, pages_of, read_heads, view_timeline
from buckets.timeline.tiers import Paging
from tests.oracle import Bounds, Cell, Event, Outcome, Result, combined, folded, tiers_of
from tests.strategies import SCHEMA

NAMES = {
    EVALUATED: "evaluated",
    TOO_LATE: "too_late",
    DUPLICATE: "duplicate",
    LATE: "late",
    COLLISION_NOT_KEPT: "collision_not_kept",
    OVERFLOW: "overflow",
    UNJUDGED: "unjudged",
}
LEAST = -(2**63)
NEVER = (2**63 - 1, -(2**63))
"""The least and the greatest value of no values."""
SMALL = Paging(page_cells=2, hot_cells=2, most_pages=16)
"""Pages so small that short streams have many."""


def cut(events: list[Event], positions: Iterable[int]) -> list[list[Event]]:
    """Events cut into micro-batches at the given positions."""
    ends = sorted({min(position, len(events)) for position in positions} | {0, len(events)})
    return [events[start:end] for start, end in pairwise(ends)]


class Engine:
    """One group of rules over a state store of bytes."""

    schema = SCHEMA

    def __init__(self, rules: list[Rule], paging: Paging = SMALL, **settings: Any) -> None:
        self.rule_set = first_rule_set(rules)
        self.paging = paging
        self.store: dict[str, bytes] = {}
        self.pages: dict[tuple[str, int], bytes] = {}
        self.from_ms: dict[str, np.ndarray] = {}
        self.settings(**settings)

    def settings(self, **settings: Any) -> None:
        """Go on under other settings."""
        self.engine = EngineSettings.model_validate(settings)
        self.plan = plan_group(self.rule_set.groups[0], self.schema, self.engine)

    def rules(self, rules: list[Rule]) -> None:
        """Go on under the next version of the rules."""
        self.rule_set = next_rule_set(self.rule_set, rules, arrived=(), lateness_ms=0)
        self.plan = plan_group(self.rule_set.groups[0], self.schema, self.engine)

    def batch(
        self, events: list[Event], emit_all: bool = True, judged: Callable[[Event], bool] = lambda event: True
    ) -> list[Outcome]:
        """Score one micro-batch; outcomes in arrival order."""
        keys = sorted({event.key for event in events})
        order = [index for key in keys for index, event in enumerate(events) if event.key == key]
        chosen = [list(self.schema.measures).index(measure) for measure in self.plan.group.measures]
        scales = [measure.scale for measure in self.schema.measures.values()]
        given = [[events[i].values[column] for i in order] for column in chosen]
        nulls = np.array([[value is None for value in of] for of in given], np.bool_).reshape(len(chosen), len(order))
        values = np.array(
            [
                [to_scaled(str(value or 0), scales[column]) for value in of]
                for column, of in zip(chosen, given, strict=True)
            ],
            np.int64,
        ).reshape(len(chosen), len(order))
        keyed = KeyedEvents.of_group(
            key_start=np.array([0, *np.cumsum([sum(e.key == key for e in events) for key in keys])], np.int64),
            times_ms=np.array([events[i].time_ms for i in order], np.int64),
            values=values,
            nulls=nulls,
            ids=ByteStrings.of([events[i].event_id.encode() for i in order]),
        )
        keyed = keyed._replace(judged=np.array([judged(events[i]) for i in order], np.bool_))
        scored = self._score(keys, keyed, emit_all)
        outcomes: list[Any] = [None] * len(events)
        for position, index in enumerate(order):
            clock = int(scored.outcomes.clock_ms[position])
            outcomes[index] = Outcome(
                NAMES[int(scored.outcomes.code[position])],
                bool(scored.outcomes.applied[position]),
                None if clock == LEAST else clock,
                scored.other_id(position),
            )
            if scored.outcomes.code[position] == DUPLICATE:
                other = zip(self.plan.group.measures, scored.outcomes.other_values[position].tolist(), strict=True)
                values = {
                    name: None if least > most else Decimal(format_scaled(least, self.schema.measures[name].scale))
                    for name, (least, most) in other
                }
                outcomes[index].repeated = int(scored.outcomes.other_ms[position]), values
        for row in zip(*(column.tolist() for column in scored.rows), strict=True):
            event, rule, whole, micro, *ends, count, fewest, most, fired, exact, certain, fits = row
            assert fits
            lower, upper = (self._shown(rule, *end, most) for end in (ends[:2], ends[2:]))
            outcome, rule_id = outcomes[order[event]], self.plan.rules[rule].rule_id
            outcome.results[rule_id] = Result(self._shown(rule, whole, micro, count), count, fired)
            outcome.bounds[rule_id] = Bounds(lower, upper, exact, certain, fewest, most)
        for event, rule in zip(scored.beyond.event.tolist(), scored.beyond.rule.tolist(), strict=True):
            outcomes[order[event]].beyond.append(self.plan.rules[rule].rule_id)
        return outcomes

    def _score(self, keys: Sequence[str], events: KeyedEvents, emit_all: bool):
        heads = ByteStrings.of([self.store.get(key, b"") for key in keys])
        before = heads.to_list()

        def read_pages(of_keys, numbers):
            wanted = zip(of_keys.tolist(), numbers.tolist(), strict=True)
            return ByteStrings.of([self.pages[keys[key], number] for key, number in wanted])

        never = np.full(len(self.plan.resetting), FROM_THE_BEGINNING)
        from_ms = np.array([self.from_ms.get(key, never) for key in keys], np.int64).reshape(len(keys), len(never))
        plans, resets = [self.plan], {0: from_ms}
        joined = join_plans(plans)
        groups = score_all(plans, joined, heads, read_pages, events, emit_all, self.paging, from_ms=resets)
        scored, pages = groups.of_group(0), groups.pages
        assert heads.to_list() == before
        self.from_ms.update(zip(keys, scored.from_ms, strict=False))
        self.store.update(zip(keys, groups.heads.to_list(), strict=True))
        for key, number, data in zip(pages.keys.tolist(), pages.numbers.tolist(), pages.data.to_list(), strict=True):
            if data:
                self.pages[keys[key], number] = data
            else:
                del self.pages[keys[key], number]
        return scored

    def _shown(self, rule: int, whole: int, micro: int, events: int) -> Decimal | None:
        """A value of so many events; of none it is NULL, but for a count."""
        is_known = events or self.plan.rules[rule].aggregate.function == "count"
        return self._number(rule, whole, micro) if is_known else None

    def _number(self, rule: int, whole: int, micro: int) -> Decimal:
        is_average = self.plan.rules[rule].aggregate.function == "avg"
        scaled = whole * 10**6 + micro if is_average else whole
        return Decimal(format_scaled(scaled, self.plan.value_scales[rule]))

    def run(self, batches: Iterable[list[Event]]) -> list[Outcome]:
        """Score micro-batches one after the other."""
        return [outcome for batch in batches if batch for outcome in self.batch(batch)]

    def visit(self, keys: Sequence[str]) -> None:
        """Look at keys without events, as eviction does."""
        self._score(keys, no_events(len(keys), len(self.plan.group.measures)), emit_all=False)

    def view(self, key: str) -> TimelineView:
        """The stored timeline of a key."""
        columns = len(self.plan.group.measures)
        return view_timeline(
            self.store[key], lambda numbers: [self.pages[key, each] for each in numbers], [False] * columns
        )

    def cells(self, key: str) -> list[Cell]:
        """The timeline of a key as the tiers say, whatever has been folded so far and however it is cut."""
        view = self.view(key)
        return folded([_cell(each) for each in view.cells], tiers_of(self.precision), view.clock_ms)

    def state(self) -> dict[str, tuple[int, list[Cell]]]:
        """Clock and timeline of every key."""
        return {key: (self.view(key).clock_ms, self.cells(key)) for key in self.store}

    @property
    def precision(self):
        """The precision of the group."""
        return self.engine.precision.of_group(self.plan.group.group_id)

    def check_store(self) -> None:
        """Check that heads and pages fit together: every page is named once, and its entry says what its cells say."""
        keys, numbers = pages_of(ByteStrings.of([*self.store.values()]))
        named = [([*self.store][key], number) for key, number in zip(keys.tolist(), numbers.tolist(), strict=True)]
        assert len(set(named)) == len(named)
        assert set(named) == set(self.pages)
        for key in self.store:
            self._check_directory(key)

    def _check_directory(self, key: str) -> None:
        head, view = self.store[key], self.view(key)
        columns = len(self.plan.group.measures)
        _, directory = read_heads(*ByteStrings.of([head]), columns)
        times = [(cell.first_ms, cell.last_ms) for cell in view.cells]
        assert times == sorted(times)
        assert [last for _, last in times] == sorted(last for _, last in times)
        for entry, number in enumerate(view.pages):
            cells = [_cell(cell) for cell in view.cells if cell.page == number]
            assert cells
            whole = combined(cells)
            assert directory.last_ms[entry] == whole.last_ms
            if directory.is_trimmed[entry]:
                assert directory.cells[entry] >= len(cells)
                assert directory.event_count[entry] >= whole.events
                assert directory.first_ms[entry] <= whole.last_ms
                continue
            assert directory.first_ms[entry] == whole.first_ms
            assert directory.cells[entry] == len(cells)
            assert directory.event_count[entry] == whole.events
            for side, extremes in ((0, whole.least), (1, whole.greatest)):
                found = directory.extremes[side, :, entry].tolist()
                assert found == [NEVER[side] if each is None else each for each in extremes]
            assert tuple(directory.nulls[:, entry]) == whole.nulls
            for pair, sums in ((directory.plus, whole.plus), (directory.minus, whole.minus)):
                assert [(int(high) << 32) + int(low) for high, low in pair[:, :, entry].T] == list(sums)


def _cell(seen) -> Cell:
    return Cell(
        seen.first_ms,
        seen.last_ms,
        seen.events,
        seen.event_id,
        seen.plus,
        seen.minus,
        seen.least,
        seen.greatest,
        seen.nulls,
    )
