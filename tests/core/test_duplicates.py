"""Which events are duplicates, by their time or by their id alone, and how they differ from what had arrived."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.config.engine import EngineSettings
from buckets.evaluation import Evaluator
from tests.engine import Engine, cut
from tests.laws import examples
from tests.oracle import Event, Oracle
from tests.strategies import MEASURES, cuts, pagings, precisions, rules, streams

LATENESS = st.sampled_from([0, 3, 100])
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])
WITHIN_MS = [1, 3, 10, 50, 200, 1000]


def with_few_ids(events: list[Event], ids: int) -> list[Event]:
    """The same events, of which many have the id of another one at another time."""
    return [event._replace(event_id=f"id-{index * 7 % ids}") for index, event in enumerate(events)]


@st.composite
def settings_by_id(draw):
    """Settings under which ids are known for as long as two events of one may be apart."""
    lateness_ms, late, collision, within_ms = (
        draw(LATENESS),
        draw(LATE),
        draw(COLLISION),
        draw(st.sampled_from(WITHIN_MS)),
    )
    precision = draw(st.just({}) | precisions(shortest_tail_ms=max(lateness_ms, within_ms)))
    written = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision, "precision": precision}
    written["duplicates"] = {"by": "id", "within": f"{within_ms}ms"}
    return written, (lateness_ms, late, collision, precision, within_ms)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(rules(resets=True), streams(), st.integers(1, 30), settings_by_id(), pagings(), cuts(), st.booleans())
def test_duplicates_by_id_are_those_of_a_loop_over_a_list(rules, events, ids, given, paging, positions, visits):
    """Also where keys are visited between batches, as eviction does, and what is too old is taken out."""
    written, (lateness_ms, late, collision, precision, within_ms) = given
    events = with_few_ids(events, ids)
    engine = Engine(rules, paging, **written)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision, precision, repeats_ms=within_ms)
    if precision and any(rule.reset_on_alert for rule in rules):
        rules = [rule.model_copy(update={"reset_on_alert": False}) for rule in rules]
        engine = Engine(rules, paging, **written)
        oracle = Oracle(rules, MEASURES, lateness_ms, late, collision, precision, repeats_ms=within_ms)
    found, expected = [], [oracle.arrive(event) for event in events]
    for batch in filter(None, cut(events, positions)):
        found += engine.batch(batch)
        if visits:
            engine.visit(sorted(engine.store))
    engine.check_store()
    assert found == expected
    check_repeated(found, expected)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(rules(), streams(), LATENESS, LATE, COLLISION, pagings(), cuts())
def test_a_duplicate_says_what_the_event_was_that_had_arrived(
    rules, events, lateness_ms, late, collision, paging, positions
):
    """Each repeat has other amounts than the event that it repeats."""
    seen: set[str] = set()
    changed = []
    for event in events:
        is_repeat = event.event_id in seen
        seen.add(event.event_id)
        changed.append(event._replace(values=tuple(reversed([None, event.values[1]]))) if is_repeat else event)
    engine = Engine(rules, paging, allowed_lateness=f"{lateness_ms}ms", late=late, collision=collision)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision)
    found, expected = engine.run(cut(changed, positions)), [oracle.arrive(event) for event in changed]
    assert found == expected
    check_repeated(found, expected)


def check_repeated(found, expected) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.repeated is None) == (other.repeated is None)
        if one.repeated is not None:
            time_ms, values = one.repeated
            assert time_ms == other.repeated[0]
            assert values == {name: other.repeated[1][name] for name in values}


# --- What the row of a duplicate says -------------------------------------------------------------------------

SCHEMA = buckets.EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"payer": "string", "shop": "string", "tries": "long", "online": "boolean", "note": "string"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 2}},
    }
)
SUM = {
    "rule_id": "sum",
    "group_by": ["payer"],
    "aggregate": {"function": "sum", "measure": "amount"},
    "window": {"length": "1h"},
    "limit": {"operator": ">", "value": "1000"},
}
FEATURES = {
    "rule_id": "features",
    "group_by": ["payer"],
    "features": {
        "n_shops": {"function": "count_distinct", "of": "shop", "window": "1h"},
        "most_tries": {"function": "max", "of": "tries", "window": "1h"},
        "fees": {"function": "sum", "of": "fee", "window": "1h", "where": {"online": True}},
    },
    "when": "n_shops > 10",
}
FIRST = {"id": "a", "t": 0, "payer": "p", "shop": "S", "tries": 1, "online": True, "note": "n", "amount": 50, "fee": 1}


def rule(written) -> buckets.Rule:
    return buckets.Rule.model_validate(written)


def duplicates(events, rules, engine=None):
    columns = {name: [event.get(name) for event in events] for name in FIRST}
    settings = EngineSettings.model_validate(engine or {})
    recorded = Evaluator([rule(each) for each in rules], SCHEMA, settings).recorded(pa.table(columns))
    return [
        {name: row[name] for name in ("event_id", "compared", "other_values", "own_values", "event")}
        for row in recorded.duplicates.to_pylist()
    ]


def test_the_row_of_a_duplicate_says_which_fields_differ_with_both_values():
    repeat = FIRST | {"amount": 75, "shop": "T", "tries": None, "note": "m", "fee": 9}
    (row,) = duplicates([FIRST, repeat], [SUM, FEATURES])
    assert row["compared"] == ["t", "amount", "shop", "tries"]
    assert row["other_values"] == '{"amount": "50.00", "tries": 1}'
    assert row["own_values"] == '{"amount": "75.00", "shop": "T", "tries": null}'
    assert row["event"] == (
        '{"id": "a", "t": 0, "payer": "p", "shop": "T", "tries": null, "online": true, "note": "m", "amount": "75.00", '
        '"fee": "9.00"}'
    )


def test_a_repeat_to_the_letter_differs_in_nothing():
    (row,) = duplicates([FIRST, FIRST], [SUM])
    assert (row["compared"], row["other_values"], row["own_values"]) == (["t", "amount"], "{}", "{}")


def test_what_was_null_is_null_among_the_values():
    (row,) = duplicates([FIRST | {"amount": None}, FIRST], [SUM])
    assert (row["other_values"], row["own_values"]) == ('{"amount": null}', '{"amount": "50.00"}')


def test_a_redelivery_with_a_new_time_stamp_is_a_duplicate_by_id_within_a_span():
    hour_ms = 3_600_000
    again = [FIRST | {"t": t} for t in (1, hour_ms, hour_ms + 1)]
    by_id = {"duplicates": {"by": "id", "within": "1h"}}
    rows = duplicates([FIRST, *again], [SUM], by_id)
    assert [row["other_values"] for row in rows] == ['{"t": 0}', '{"t": 0}']
    assert [row["own_values"] for row in rows] == ['{"t": 1}', f'{{"t": {hour_ms}}}']
    assert duplicates([FIRST, *again], [SUM]) == []


def test_ids_are_known_no_longer_than_the_timeline_of_a_group_reaches_back():
    """The window has an hour, the allowed lateness nothing: a day later the timeline holds the first event no more."""
    engine = {"allowed_lateness": "0s", "duplicates": {"by": "id", "within": "7d"}}
    assert duplicates([FIRST, FIRST | {"t": 86_400_000}], [SUM], engine) == []
    longer = SUM | {"rule_id": "long", "state": "PAUSE", "window": {"length": "7d"}}
    assert len(duplicates([FIRST, FIRST | {"t": 86_400_000}], [SUM, longer], engine)) == 1


@pytest.mark.parametrize("size", [1, 2, 7])
def test_rows_of_duplicates_do_not_depend_on_the_cut(size):
    events = [
        FIRST | {"id": f"e{index % 5}", "t": index * 1000 % 7000, "amount": index, "shop": f"S{index % 3}"}
        for index in range(60)
    ]
    columns = {name: [event.get(name) for event in events] for name in FIRST}
    table = pa.table(columns)
    engine = EngineSettings.model_validate({"duplicates": {"by": "id", "within": "3s"}})
    whole = Evaluator([rule(SUM), rule(FEATURES)], SCHEMA, engine).recorded(table).duplicates
    cut_up = Evaluator([rule(SUM), rule(FEATURES)], SCHEMA, engine)
    pieces = [cut_up.recorded(table.slice(at, size)).duplicates for at in range(0, len(events), size)]
    assert len(whole) > 10
    assert pa.concat_tables(pieces).drop_columns("position").equals(whole.drop_columns("position"))


@pytest.mark.parametrize(
    "engine",
    [
        {"duplicates": {"by": "id"}},
        {"duplicates": {"within": "1h"}},
        {"duplicates": {"by": "id", "within": "0s"}},
        {"duplicates": {"by": "id", "within": "2h"}, "precision": {"tail": "1h"}},
        {"duplicates": {"by": "id", "within": "2h"}, "precision": {"groups": [{"group_by": ["payer"], "tail": "1h"}]}},
    ],
)
def test_settings_of_duplicates_that_do_not_go_together_are_refused(engine, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        EngineSettings.model_validate(engine)
