"""Rules that span groups, judged piece by piece and apart from the driver, come out as they do on the driver alone."""

from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.batch import payload
from buckets.engine.stages import in_memory
from buckets.engine.stages.accounting import by_arrival, cut_by_event, cut_by_key
from buckets.engine.stages.alert_stage import complete_batch, fired_parts
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder, memory_stores
from buckets.engine.stages.shard import COUNTS, Produced, Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule_set import RuleSet
from tests.core.test_features import SCHEMA, rules, streams, table
from tests.laws import examples

PIECES = 3
"""So few that the events of a key lie in several, and their order is not that of arrival."""
ENGINE = buckets.EngineSettings.model_validate({"late": "add", "allowed_lateness": "3s", "shards": 3})


def rows_of(produced: list[Produced], rule_set: RuleSet) -> dict[str, list[str]]:
    decoder, found = OutputDecoder(rule_set, SCHEMA, ENGINE), {}
    for output in {one.output for one in produced} - {COUNTS, PARTS}:
        tables = decoder.tables(output, [one.payload for one in produced if one.output == output])
        found[output] = sorted(repr(row) for each in tables for row in each.to_pylist())
    return found


class BothWays:
    """Completes each batch twice, with stores of its own for each way."""

    def __init__(self) -> None:
        self.stores, self.thinned, self.parts = memory_stores(), 0, 0

    def __call__(self, batch_id: int, produced: Any, scorer: Scorer, rule_set: RuleSet, stores: Any) -> Any:
        produced = list(produced)
        met, account = complete_batch(batch_id, produced, scorer, rule_set, stores)
        cuts = [cut_by_event(one.payload) for one in produced if one.output == PARTS]
        apart = [one for one in produced if one.output != PARTS]
        for number in reversed(range(PIECES)):
            apart += fired_parts(scorer, [cut[number] for cut in cuts if cut[number]], rule_set)
        others, of_others = complete_batch(batch_id, apart, scorer, rule_set, self.stores, True)
        assert rows_of([*apart, *others], rule_set) == rows_of([*produced, *met], rule_set)
        assert of_others == account
        assert self.stores.cross_group.policies.data == stores.cross_group.policies.data
        self.parts += sum(payload.unpack(one.payload).num_rows for one in produced if one.output == PARTS)
        self.thinned += sum(payload.unpack(one.payload).num_rows for one in apart if one.output == PARTS)
        return met, account


@settings(max_examples=examples(60))
@given(rules(), streams(), st.integers(1, 24), st.sampled_from([None, "5s"]), st.booleans())
def test_parts_that_meet_apart_give_the_same_rows_accounts_and_state(rules, rows, cut, cooldown, evaluations):
    if cooldown is not None:
        rules = [rule.model_validate(rule.model_dump(exclude_defaults=True) | {"cooldown": cooldown}) for rule in rules]
    rows = [row | {"bene": row["bene"] or None} for row in rows]
    rule_set = revise(RuleSet(0, (), (), {}), changes_between((), rules), SCHEMA, (), 0).rule_set
    both = BothWays()
    with patch.object(in_memory, "complete_batch", both), patch("buckets.engine.stages.accounting.PIECES", PIECES):
        job = InMemoryJob(Scorer(SCHEMA, ENGINE, evaluations))
        for part in (rows[:cut], rows[cut:]):
            if part:
                job.score_batch(table_arrivals(table(part), SCHEMA), rule_set)
    assert both.thinned <= both.parts


def test_pieces_hold_each_row_once_and_all_rows_of_a_key():
    keys = [None if number % 11 == 0 else f'{{"payer": "{number % 7}"}}' for number in range(500)]
    rows = pa.table({"key": pa.array(keys, pa.string()), "position": range(500)})
    pieces = [payload.unpack(piece).to_pylist() if piece else [] for piece in cut_by_key(rows)]
    assert sorted(row["position"] for piece in pieces for row in piece) == list(range(500))
    for key in set(keys):
        assert sum(any(row["key"] == key for row in piece) for piece in pieces) == 1
    assert all([row["position"] for row in piece] == sorted(row["position"] for row in piece) for piece in pieces)


def test_rows_come_in_the_order_of_arrival_with_those_of_an_event_together():
    rows = [{"source": f"t[{n % 2}]", "source_order": n % 2, "position": n // 6, "n": n} for n in range(900)]
    table = pa.Table.from_pylist(rows[::-1])
    for most in (1, 7, 100, 899, 900):
        pieces = [piece.to_pylist() for piece in by_arrival(table, most)]
        events = [[(row["source_order"], row["source"], row["position"]) for row in piece] for piece in pieces]
        assert sorted(row["n"] for piece in pieces for row in piece) == list(range(900))
        if most < 900:
            in_order = [event for piece in events for event in piece]
            assert in_order == sorted(in_order)
            assert all(len(piece) < most + 3 for piece in pieces)
        assert sum(len(set(piece)) for piece in events) == 300
