"""What is beyond a share of the driver lies in files, and is read from there as it was; no more comes to the driver."""

import json

import pytest

from buckets.checkpoint.identity import Terms
from buckets.engine.batch import payload
from buckets.engine.stages.accounting import PIECES, BatchAccount
from buckets.engine.stages.shard import COUNTS, Produced
from buckets.outputs import columns
from buckets.spark import spilled
from buckets.spark.scored_batch import ScoredBatch
from tests.core.examples import SCHEMA
from tests.core.test_output_decoder import DECODER, ENGINE, RULES, dead_letters, produced


@pytest.mark.parametrize("output", ["delta", "kafka"])
@pytest.mark.parametrize("share_bytes", [0, 5_000, 1 << 20])
def test_a_batch_says_the_same_wherever_its_payloads_lie(tmp_path, monkeypatch, output, share_bytes):
    payloads = produced()
    payloads[columns.DEAD_LETTERS] += [dead_letters((9, "sum of r")), dead_letters((9, "sum of q"))]
    made = [Produced(name, 1, packed) for name, several in payloads.items() for packed in several]
    made.append(Produced(COUNTS, 0, b"{}" * 1_000))
    monkeypatch.setattr(spilled, "spill_of_task", lambda: (tmp_path / "spilled", 4 * share_bytes))
    terms = Terms(event_schema=SCHEMA, engine=ENGINE, evaluations=True, output=output)

    rows = list(spilled.beyond_share(made, 4, RULES, terms))

    batch = ScoredBatch(BatchAccount(0, RULES.version, 0, 0, (), ()), RULES, terms, rows, None)
    for name in columns.output_columns(SCHEMA.largest_scale):
        found, expected = batch.table(name).to_pylist(), DECODER.table(name, payloads[name]).to_pylist()
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        at_hand = sum(len(table) for table in batch.tables_at_hand(name)) if name != columns.DEAD_LETTERS else 0
        lying = [each for at in batch.spilled(name) for each in at.payloads()]
        if name != columns.DEAD_LETTERS:
            assert at_hand + sum(len(table) for table in DECODER.tables(name, lying)) == len(expected)
        assert all(spilled.is_cut_by_key(name, terms) == (len(at.ends) - 1 == PIECES) for at in batch.spilled(name))
    kept = [row.payload for row in rows if row.output != COUNTS and row.payload[:1] != payload.SPILLED]
    assert sum(map(len, kept)) <= share_bytes
    assert len(list(tmp_path.rglob("*.payloads"))) == (sum(map(len, (row.payload for row in made[:-1]))) > share_bytes)
    assert [row.payload for row in rows if row.output == COUNTS] == [b"{}" * 1_000]


def test_a_place_is_read_as_it_was_written():
    at = spilled.Spilled("s3a://bucket/a b", (7, 7, 1 << 40))
    assert spilled.spilled(at.as_payload()) == at
    assert spilled.spilled(payload.ROWS + json.dumps(["x"]).encode()) is None
