"""What shards produced, decoded: one row for each dead letter and each evaluation, in the columns of their output."""

import pytest

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import dead_letter_table
from buckets.engine.batch.fan_out import fan_out
from buckets.engine.stages.in_memory import OutputDecoder, memory_store
from buckets.engine.stages.shard import COUNTS, Scorer
from buckets.events.arrivals import DeadLetter
from buckets.outputs import columns
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import arrivals

ENGINE = EngineSettings(shards=4, late="add")
RULES = first_rule_set(
    [
        rule("by-payer", limit={"operator": ">", "value": "-1e9"}),
        rule("by-kind", group_by=["kind"]),
        rule("on-trial", state="SHADOW", limit={"operator": ">", "value": "-1e9"}),
        rule("quiet", cooldown="1h", limit={"operator": ">", "value": "-1e9"}),
    ]
)
DECODER = OutputDecoder(RULES, SCHEMA, ENGINE)


def row(event_id: str, at: int, **fields) -> dict:
    return {"id": event_id, "at": at, "payer": "a", "account": 7, "kind": "k", "amount": "1.50", "fee": 2} | fields


def produced() -> dict[str, list[bytes]]:
    """Payloads of every output, from several shards."""
    rows = [
        row("a", 10),
        row("b", 10),
        row("a", 10),
        row("late", 5),
        row("x", 1, amount="ten"),
        row("c", 11, payer="b"),
    ]
    by_shard: dict[int, list[bytes]] = {}
    for message in fan_out(arrivals(rows, SCHEMA), RULES, SCHEMA, ENGINE).messages():
        by_shard.setdefault(message.shard, []).append(message.payload)
    found: dict[str, list[bytes]] = {}
    for messages in by_shard.values():
        for each in Scorer(SCHEMA, ENGINE, evaluations=True).score(messages, RULES, memory_store()):
            if each.output != COUNTS:
                found.setdefault(each.output, []).append(each.payload)
    return found


def dead_letters(*reasons: tuple[int, str]) -> bytes:
    table = dead_letter_table([DeadLetter("file", 0, position, reason, "raw text") for position, reason in reasons])
    return payload.pack(payload.DEAD_LETTERS, table)


def test_every_output_has_the_columns_that_are_written_of_it():
    expected = columns.output_columns(SCHEMA.largest_scale)
    found = {output: DECODER.table(output, payloads) for output, payloads in produced().items()}
    assert found.keys() == expected.keys()
    for output, table in found.items():
        assert table.select(expected[output].names).cast(expected[output]).num_rows > 0


def test_evaluations_come_as_one_row_for_an_event_and_a_rule():
    payloads = produced()[columns.EVALUATIONS]
    tables = list(DECODER.tables(columns.EVALUATIONS, payloads))
    assert len(tables) == len(payloads) > 1
    found = {(row["event_id"], row["rule_id"]) for table in tables for row in table.to_pylist()}
    assert found == {(event, each.rule_id) for event in "abc" for each in RULES.rules}


def test_an_event_has_one_dead_letter_with_all_its_reasons_whichever_shards_they_came_from():
    payloads = [
        dead_letters((2, "sum of r"), (1, "broken")),
        dead_letters((2, "sum of q")),
        dead_letters((2, "sum of r")),
    ]
    (table,) = DECODER.tables(columns.DEAD_LETTERS, payloads)
    assert table.schema == columns.DEAD_LETTER_COLUMNS
    assert [(row["position"], row["reason"]) for row in table.to_pylist()] == [(1, "broken"), (2, "sum of q; sum of r")]


@pytest.mark.parametrize("output", columns.output_columns(0))
def test_no_payloads_are_no_tables(output):
    assert list(DECODER.tables(output, [])) == []
