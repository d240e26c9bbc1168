"""The stateless stage over the pieces of a task, without a JVM."""

from buckets.checkpoint.identity import Terms
from buckets.config.engine import EngineSettings
from buckets.rules.rule_set import first_rule_set
from buckets.spark.windows import fan_out_rows
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Row, arrivals

RULES = first_rule_set([rule("r")])
TERMS = Terms(event_schema=SCHEMA, engine=EngineSettings(shards=4), evaluations=False, output="delta")


def row(number: int) -> Row:
    return {"id": f"e{number}", "at": number, "payer": f"p{number}", "account": 7, "kind": "k", "amount": "1", "fee": 2}


def messages_of(*pieces: list[Row]) -> list[tuple[int, bytes]]:
    """What pieces of one task become: shards and payloads."""
    fanned = fan_out_rows([arrivals(rows, SCHEMA) for rows in pieces], RULES, TERMS)
    return [(message.shard, message.payload) for each in fanned for message in each.messages()]


def test_every_piece_of_a_task_becomes_what_it_becomes_alone():
    pieces = [[row(number) for number in range(first, first + 5)] for first in (0, 5, 10)]
    alone = [message for piece in pieces for message in messages_of(piece)]
    assert messages_of(*pieces) == alone
    assert len({shard for shard, _ in alone}) > 2


def test_an_empty_piece_is_passed_over():
    assert messages_of([], [row(1)], []) == messages_of([row(1)])
