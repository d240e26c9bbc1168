"""State that is carried into a job of other settings: the job goes on as if it had always had them."""

from itertools import pairwise
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from buckets.carry.regrouping import regrouping
from buckets.carry.stores import carried_stores
from buckets.engine import eviction, shard_clock
from buckets.engine.in_memory import memory_stores
from buckets.engine.key import decode_key, encode_keys, key_json, shards_of
from buckets.engine.shard_store import DriverStores, split_head_key
from buckets.events.schema import EventSchema
from buckets.rules.completeness import joined
from buckets.rules.renaming import renamed_rule, renamed_rules, renamed_sql
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set, with_lateness
from buckets.rules.sql_filter import parse_sql_filter
from tests.core import test_evicted_keys as evicted
from tests.core.examples import SCHEMA, rule, written_rule
from tests.core.pipeline import Pipeline
from tests.core.test_evicted_keys import CUTS, EVENTS, LAGS_MS, check, stream

NAMES = {"payer": "a0payer", "kind": "zzkind", "fee": "fee_x"}
SHARDS = st.sampled_from([1, 2, 3, 5])
RULES = [
    *evicted.RULES,
    rule("pairs", length="60ms", group_by=["payer", "kind"]),
    rule("sql", length="30ms", where="kind = 'a' AND coalesce(fee, 0) < 4"),
    Rule.model_validate(
        {
            "rule_id": "condition",
            "group_by": ["payer"],
            "cooldown": "20ms",
            "features": {
                "mine": {"function": "sum", "of": "fee", "window": "30ms", "where": "kind = 'a'"},
                "everybody": {"function": "count", "window": "50ms", "group_by": ["kind"]},
            },
            "when": "mine >= 1 AND everybody >= 2 AND payer <> 'p9'",
        }
    ),
]


def renamed_schema(names) -> EventSchema:
    written = SCHEMA.model_dump(mode="json")
    for role in ("attributes", "measures"):
        written[role] = {names.get(name, name): kind for name, kind in written[role].items()}
    return EventSchema.model_validate(written)


def renamed_rows(rows, names):
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def job_of(rules, schema=SCHEMA, lateness_ms: int = evicted.LATENESS_MS, **engine) -> Pipeline:
    return Pipeline(first_rule_set(rules), schema, allowed_lateness=f"{lateness_ms}ms", **engine)


def take(job: Pipeline, rows, cuts) -> Pipeline:
    """Take in rows, cut at some indexes."""
    ends = sorted({min(index, len(rows)) for index in cuts} | {0, len(rows)})
    for start, end in pairwise(ends):
        job.batch([rows[start:end]])
    return job


def carried(job: Pipeline, shards: int, lateness_ms: int | None = None, names=None) -> Pipeline:
    """A job that goes on from another one, with other shards, lateness, or names of fields."""
    engine, before, names = job.scorer.engine, job.rule_set, names or {}
    now_ms = engine.allowed_lateness if lateness_ms is None else lateness_ms
    renamed = renamed_rules(before, names, before.version)
    arrived = joined(stretch for account in job.accounts for stretch in account.arrived)
    rule_set = with_lateness(renamed.rule_set, before.version, arrived, engine.allowed_lateness, now_ms)
    policies = {"late": engine.late, "collision": engine.collision}
    found = job_of([], renamed_schema(names), now_ms, shards=shards, **policies)
    found.rule_set, found.found, found.accounts = rule_set, job.found, job.accounts
    pairs = [(group, renamed.groups[group.group_id]) for group in (*before.groups, *before.alert_groups)]
    into = regrouping(pairs, names, now_ms, engine.shards, shards)
    found.stores = carried_stores(job.stores, into)
    stores = vars(job.driver).values()
    found.driver = DriverStores(*(carried_stores({0: store}, into.on_driver())[0] for store in stores))
    return found


def in_old_names(job: Pipeline, names) -> Pipeline:
    """The same results, as they would be without the new names."""

    def old(value):
        if isinstance(value, list):
            return [old(each) for each in value]
        for name, new in names.items():
            value = value.replace(new, name) if isinstance(value, str) else value
        return value

    job.found = {
        output: [{name: old(value) for name, value in row.items()} for row in rows]
        for output, rows in job.found.items()
    }
    return job


@settings(max_examples=60, phases=[Phase.generate])
@given(
    EVENTS,
    LAGS_MS,
    CUTS.filter(lambda cuts: cuts is not None),
    st.integers(0, 80),
    SHARDS,
    SHARDS,
    st.sampled_from([evicted.LATENESS_MS, 0, 25, 300]),
    st.sampled_from([{}, NAMES, {"payer": "a0payer"}, {"amount": "other"}]),
    evicted.LATE,
    evicted.COLLISION,
)
def test_a_job_that_was_carried_over_and_back_goes_on_as_if_nothing_had_happened(
    events, lags_ms, cuts, at, shards, other_shards, lateness_ms, names, late, collision
):
    """Whatever says that it is warm is what a job says that was never stopped, and never had other settings."""
    rows = stream(events, lags_ms)
    pieces = [rows[:at], rows[at : at + 30], rows[at + 30 :]]
    policies = {"late": late, "collision": collision}
    with mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2), mock.patch.object(eviction, "SPARE_VISITS", 100):
        job = take(job_of(RULES, shards=shards, **policies), pieces[0], cuts)
        there = take(carried(job, other_shards, lateness_ms, names), renamed_rows(pieces[1], names), cuts)
        back = carried(
            in_old_names(there, names), shards, evicted.LATENESS_MS, {new: old for old, new in names.items()}
        )
        assert back.rule_set.groups == tuple(
            __import__("dataclasses").replace(mine, complete=theirs.complete)
            for mine, theirs in zip(job.rule_set.groups, back.rule_set.groups, strict=True)
        )
        back = take(back, pieces[2], cuts)
    with mock.patch.object(shard_clock, "QUORUM", 10**9):
        never = take(job_of(RULES, shards=1, lateness_ms=evicted.LATENESS_MS, **policies), rows, [])
    check(back, never)
