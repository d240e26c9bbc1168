"""State that is carried into a job of other settings: the job goes on as if it had always had them."""

from itertools import pairwise
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.carry.regrouping import Regrouping, regrouping
from buckets.carry.stores import carried_stores
from buckets.engine import eviction, shard_clock
from buckets.engine.eviction_schedule import CLOCK, OVERVIEW
from buckets.engine.in_memory import MemoryEntries
from buckets.engine.key import decode_key, encode_keys, shards_of
from buckets.engine.shard_store import DriverStores, ShardStore, split_head_key
from buckets.events.schema import EventSchema
from buckets.rules.completeness import Stretches, joined
from buckets.rules.renaming import renamed_rule, renamed_rules, renamed_sql
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet, first_rule_set, with_lateness
from tests.core import test_evicted_keys as evicted
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Pipeline
from tests.core.test_evicted_keys import CUTS, EVENTS, LAGS_MS, check, stream, without_eviction

NAMES = {"payer": "zahler", "kind": "art", "fee": "a fee"}
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


def carried(job: Pipeline, shards: int, names=(), lateness_ms: int | None = None) -> Pipeline:
    """A job that goes on from another one, with other shards, names of fields, or lateness."""
    engine, before = job.scorer.engine, job.rule_set
    names, now_ms = dict(names), engine.allowed_lateness if lateness_ms is None else lateness_ms
    renamed = renamed_rules(before, names, before.version)
    arrived: Stretches = joined(stretch for account in job.accounts for stretch in account.arrived)
    rule_set = with_lateness(renamed.rule_set, before.version, arrived, engine.allowed_lateness, now_ms)
    found = Pipeline(rule_set, renamed_schema(names), **engine.model_dump() | {"shards": shards})
    pairs = [
        (group, renamed.groups[group.group_id]) for group in (*before.groups, *before.alert_groups)
    ]
    into = regrouping(pairs, names, now_ms, engine.shards, shards)
    found.stores = carried_stores(job.stores, into)
    found.driver = DriverStores(
        *(carried_stores({0: store}, into.on_driver())[0] for store in vars(job.driver).values())
    )
    return found
