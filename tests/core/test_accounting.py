"""The accounts of a batch: what goes in comes out, group by group."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.engine.stages.accounting import BatchFacts, ShardMemory, account_batch, evicted_count, shard_count
from buckets.kernel.outcome import OUTCOMES
from buckets.outputs.columns import BATCH_COLUMNS
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import rule, until

RULES = first_rule_set([rule("a"), rule("b", group_by=["kind"], where={"vip": True})])
PLAIN, FILTERED = (group.group_id for group in RULES.groups)


def arrived(arrivals: int, malformed: int, filtered: int, latest_ms: int | None, no_key: int = 0) -> bytes:
    text = {"arrivals": arrivals, "malformed": malformed, "arrived": until(latest_ms)}
    text |= {"filtered": {PLAIN: 0, FILTERED: filtered}, "no_key": {PLAIN: 0, FILTERED: no_key}}
    return json.dumps(text).encode()


def evaluated(group_id: str, outcomes: list[int], alerts: int = 0, held: int = 0) -> bytes:
    counts = {"groups": {group_id: {"outcomes": outcomes, "alerts": alerts, "held_alerts": held}}}
    return json.dumps(counts).encode()


def test_counts_of_all_tasks_and_shards_are_added_up():
    account = account_batch(
        7,
        RULES,
        [
            arrived(20, 2, 1, 500, no_key=3),
            evaluated(PLAIN, [0, 2, 3, 4, 5, 1, 1], alerts=2, held=4),
            evaluated(PLAIN, [2, 0, 0, 0, 0, 0, 0], alerts=1, held=1),
            arrived(2, 2, 0, None),
            evaluated(FILTERED, [14, 0, 0, 0, 0, 0, 0]),
            arrived(0, 0, 0, -3),
        ],
    )
    account.check()
    assert (account.batch_id, account.ruleset_version, account.events_in, account.malformed) == (7, 1, 22, 4)
    assert account.latest_ms == 500
    assert vars(account.groups[0]) == {
        "group_id": PLAIN, "group": "payer", "events_in": 22, "filtered": 0, "evaluated": 2, "too_late": 2,
        "duplicates": 3, "late": 4, "collisions_not_kept": 5, "dead_letters": 5, "alerts": 3,
        "held_alerts": 5, "no_key": 0, "skipped": 0, "unjudged": 1, "rounded": 0,
    }  # fmt: skip
    second = account.groups[1]
    assert (second.group, second.no_key, second.filtered, second.evaluated) == ("kind where vip is true", 3, 1, 14)
    assert (second.dead_letters, second.alerts) == (4, 0)


@given(
    st.integers(0, 5),
    st.lists(st.integers(0, 4), min_size=OUTCOMES, max_size=OUTCOMES),
    st.integers(-3, 3).filter(bool),
)
def test_an_event_that_is_lost_or_doubled_stops_the_batch(malformed, outcomes, lost):
    total = sum(outcomes) + malformed
    if total + lost >= 0:
        counts = [arrived(total + lost, malformed, total - malformed + lost, 0), evaluated(PLAIN, outcomes)]
        with pytest.raises(RuntimeError, match=f"batch 3: {lost} events of group 'payer' are unaccounted"):
            account_batch(3, RULES, counts).check()
    balanced = [arrived(total, malformed, total - malformed, 0), evaluated(PLAIN, outcomes)]
    account = account_batch(3, RULES, balanced)
    account.check()
    assert [group.balance for group in account.groups] == [0, 0]


def test_what_is_counted_beside_the_accounts_is_added_up_and_changes_nothing_in_them():
    told = [
        arrived(5, 3, 0, 500)[:-1] + b', "reasons": {"amount": 2, "unreadable": 1}, "skipped": {"deleted": 2}}',
        arrived(1, 1, 0, None)[:-1] + b', "reasons": {"amount": 1}, "rounded": {"amount": 3}}',
        evaluated(PLAIN, [2, 0, 0, 0, 0, 1, 0], alerts=2)[:-1] + b', "rules": {"alerts": {"a": 2}}}',
        evaluated(PLAIN, [0] * OUTCOMES)[:-1] + b', "rules": {"alerts": {"a": 1}, "held_alerts": {"b": 4}}}',
        evaluated(PLAIN, [0] * OUTCOMES)[:-1] + b', "new_keys": {"payer": 2}}',
        evaluated(PLAIN, [0] * OUTCOMES)[:-1] + b', "new_keys": {"payer": 1, "kind": 1}}',
        evicted_count({"kind": 5}),
        shard_count(3, ShardMemory(100, 20)),
    ]
    account = account_batch(1, RULES, told)
    assert account.facts == BatchFacts(
        rules={"alerts": {"a": 3}, "held_alerts": {"b": 4}},
        dead_letters={"amount": 3, "unreadable": 1, "overflow": 1},
        skipped={"deleted": 2},
        rounded={"amount": 3},
        new_keys={"payer": 3, "kind": 1},
        evicted_keys={"kind": 5},
        shards={3: ShardMemory(100, 20)},
    )
    plain = [text for text in told if b"outcomes" in text or b"arrivals" in text]
    assert account == account_batch(1, RULES, plain)
    assert account.rows() == account_batch(1, RULES, plain).rows()


def test_a_batch_without_events_balances():
    account = account_batch(0, RULES, [])
    account.check()
    assert (account.events_in, account.latest_ms) == (0, None)
    assert [row["latest_event_time"] for row in account.rows()] == [None, None]


@pytest.mark.parametrize("latest_ms", [-1, 0, 1_700_000_000_001, -2_208_988_800_000])
def test_rows_have_the_columns_of_their_table_and_the_exact_moment(latest_ms):
    rows = account_batch(4, RULES, [arrived(1, 1, 0, latest_ms)]).rows()
    table = pa.Table.from_pylist(rows, schema=BATCH_COLUMNS)
    assert set(rows[0]) == set(BATCH_COLUMNS.names)
    assert table["latest_event_time"].cast(pa.int64()).to_pylist() == [latest_ms] * 2
    assert table["group_id"].to_pylist() == [PLAIN, FILTERED]
    assert rows[0]["latest_event_time"].tzinfo is UTC
    assert isinstance(rows[0]["latest_event_time"], datetime)
