"""A replica is ahead of its job, and says what the job will say: whatever its cuts, orders, rules and restarts."""

import json
import operator
from functools import partial
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.checkpoint.identity import Terms
from buckets.config.engine import EngineSettings
from buckets.config.source import KafkaSource
from buckets.engine.eviction import eviction, shard_clock
from buckets.engine.stages import shard
from buckets.engine.stages.in_memory import InMemoryJob, MemoryEntries, memory_store, memory_stores
from buckets.engine.stages.shard import Scorer
from buckets.engine.storage.shard_store import (
    HEADS,
    PAGES,
    POLICIES,
    SCHEDULE,
    DriverStores,
    Section,
    ShardStore,
)
from buckets.events.schema import EventSchema
from buckets.kernel import score
from buckets.lists.base import Entry
from buckets.lists.index import ListIndex
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set, next_rule_set
from buckets.serve import replica as replicas
from buckets.serve.answers import answers
from buckets.serve.begin import one_store
from buckets.serve.job_batches import JobBatch, ScoredBy
from buckets.serve.replica import CHECK, NeedsState, Replica, TakenMessage, Undoing, message_rows, undo
from buckets.state import live_log
from buckets.state.layer import Bounds, Layer
from buckets.state.live_log import PrivateCaches
from buckets.timeline.tiers import Paging
from tests.core.examples import SCHEMA, rule
from tests.core.pinned import topic_messages
from tests.core.test_carry import RULES as ALL_RULES
from tests.core.test_evicted_keys import EVENTS, LAGS_MS, row, stream
from tests.laws import examples

LISTED = Rule.model_validate(
    {
        "rule_id": "listed",
        "group_by": ["payer"],
        "where": "payer IN LIST watched",
        "features": {"number": {"function": "count", "window": "60ms"}},
        "when": "number >= 1",
    }
)
RULES = [*(each for each in ALL_RULES if each.rule_id != "sql"), LISTED]
OVER_ALERTS = Rule.model_validate(
    {
        "rule_id": "often",
        "on": "alerts",
        "group_by": ["payer"],
        "features": {"alerts": {"function": "count", "window": "60ms"}},
        "when": "alerts >= 2",
    }
)
OTHER = [
    [rule("sum", length="25ms", version=2), *RULES[1:]],
    [*RULES, rule("another", length="30ms", group_by=["kind"])],
    [*RULES, OVER_ALERTS],
]
LISTS = [ListIndex.of({f"p{number}": Entry() for number in of}) for of in ([0, 1], [1, 2, 3], [])]
WIDER = EventSchema.model_validate(
    SCHEMA.model_dump(mode="json")
    | {"attributes": {"country": "string"} | SCHEMA.model_dump(mode="json")["attributes"]}
)
SCHEMAS = [SCHEMA, WIDER]
SMALL_PAGES = Paging(page_cells=3, hot_cells=2, most_pages=64)
NARROW = Bounds(4_000, 1 << 20, 1)
READ = topic_messages(KafkaSource(kind="kafka", topic="payments"), lambda number: None).read


def scored_by(rule_set, shards: int, number: int = 1, schema: EventSchema = SCHEMA, watched: int = 0) -> ScoredBy:
    """What a batch is scored by, as a checkpoint would tell it."""
    made = ScoredBy(None, rule_set.version, (("watched", watched),), number)
    engine = EngineSettings.model_validate({"shards": shards, "allowed_lateness": "10ms"})
    terms = Terms(event_schema=schema, engine=engine, evaluations=False, output="kafka")
    one = terms.model_copy(update={"engine": engine.model_copy(update={"shards": 1})})
    lists = {"watched": LISTS[watched]}
    made.__dict__.update(job_rules=rule_set, rule_set=rule_set, terms=one, of_job=terms, _lists=lists)
    return made


class Stored(MemoryEntries):
    """A store of a shard: as in RocksDB, a key that is not there may be forgotten."""

    def remove(self, keys: ByteStrings) -> None:
        for key in keys.to_list():
            self.data.pop(key, None)


class Job:
    """A job, batch by batch, in its own order and over its own shards, whose state lies in stores behind logs."""

    def __init__(self, shards: int) -> None:
        self.job = InMemoryJob(None, new_store=self._new_store)
        self.said = {}
        self.shards = shards
        self._stored, self._caches, self._layers = [], [], []

    def batch(self, messages, by: ScoredBy) -> None:
        terms = by.__dict__["of_job"]
        self.job.scorer = Scorer(terms.event_schema, terms.engine, False, by._lists, True)
        for place in sorted({each.place for each in messages}):
            own = sorted((each for each in messages if each.place == place), key=lambda each: each.offset)
            arrivals = READ(message_rows(own, str, terms.event_schema), terms.event_schema, terms)
            results = self.job.score_batch([arrivals], by.rule_set)
            note(self.said, replicas.ScoredMessages(own, arrivals, results, by))
            for layer in self._layers:
                layer.commit()

    def _new_store(self) -> ShardStore:
        self._stored.append(Stored())
        self._layers.append(Layer(self._stored[-1], PrivateCaches(), NARROW))
        return store_over(self._layers[-1], self._stored[-1])

    def stored(self) -> pa.Table:
        """What lies in its stores: pairs, and segments of the logs."""
        rows = [(shard, *entry) for shard, store in enumerate(self._stored) for entry in store.data.items()]
        kinds = {"shard": pa.int32(), "state_key": pa.binary(), "value": pa.binary()}
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)], [*kinds]
        )


def store_over(layer: Layer, stored: MemoryEntries) -> ShardStore:
    """The store of a shard, as tasks have it: pages go past the log."""
    heads, schedule, policies = (Section(layer, name) for name in (HEADS, SCHEDULE, POLICIES))
    return ShardStore(heads, Section(stored, PAGES), schedule, policies)


@pytest.fixture(autouse=True)
def small_parts():
    """Pages, and segments of logs, so small that short streams have many."""
    with (
        mock.patch.object(live_log, "OPEN_BYTES", 500),
        mock.patch.object(shard, "score_all", partial(score.score_all, paging=SMALL_PAGES)),
        mock.patch.object(eviction, "score_all", partial(score.score_all, paging=SMALL_PAGES)),
    ):
        yield


def note(said, scored, features: bool = True) -> None:
    """Keep what was said of messages; the last that was said counts."""
    for offset, answer in answers(scored, {each.offset for each in scored.messages}, 0, features).items():
        shown = {"rules": answer.ruleset_version, "outcome": answer.outcome, "reason": answer.reason}
        parts = {"alerts": answer.alerts, "held": answer.held} | ({"features": answer.features} if features else {})
        said[scored.messages[0].place, offset] = shown | parts


def messages_of(rows, partitions: int) -> list[TakenMessage]:
    """Rows as messages, those of a payer in one partition, in the order in which they were written."""
    written, messages = dict[int, int](), []
    for each in rows:
        partition = int(each["payer"][1:]) % partitions
        offset = written.get(partition, 0)
        written[partition] = offset + 1
        value = {name: each[name] for name in SCHEMA.field_names if name in each}
        value = {name: json.loads(text) if text in ("true", "false") else text for name, text in value.items()}
        messages.append(TakenMessage((partition, "payments"), offset, json.dumps(value).encode(), time_ms=offset))
    return messages


def begun(job: Job, batch: JobBatch) -> Replica:
    """A replica of the state of a job, as it is read from its stores."""
    groups = {group.state_id: group for group in batch.scored_by.rule_set.groups}
    copied = one_store(job.stored(), groups, 10)
    driver = DriverStores(*(one_driver_store(store) for store in vars(job.job.driver).values()))
    return Replica(copied, driver, batch, READ)


def one_driver_store(store):
    copied = memory_store()
    for name, entries in vars(store).items():
        keys = ByteStrings.of([*entries.list_keys()])
        getattr(copied, name).write(keys, entries.read(keys))
    return copied


PLANS = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "batch", "batch", "check", "restart"]), st.integers(1, 12)),
    min_size=8,
    max_size=40,
)


def play(events, lags_ms, plan, partitions, shards, changes, others):
    """Go through a plan to its end; returns what was said last of each message, and what the job says."""
    rows = [each | {"position": None} for each in stream(events, lags_ms)]
    messages = messages_of(rows, partitions)
    at_batch, others_at = dict(changes), {at: of for at, *of in others}
    rule_sets = [first_rule_set(RULES)]
    job, said = Job(shards), {}
    by, number, done, schema, watched = scored_by(rule_sets[0], shards), 0, 0, 0, 0
    nothing = JobBatch(0, dict.fromkeys(((at, "payments") for at in range(partitions)), 0), by)
    replica, taken, newest = begun(job, nothing), 0, nothing

    def batch(size: int) -> None:
        nonlocal by, done, number, newest, schema, watched
        of_job, done, number = messages[done : done + size], min(done + size, len(messages)), number + 1
        if number in at_batch:
            rules = next_rule_set(rule_sets[-1], OTHER[at_batch[number]], (), 10)
            rule_sets.append(rules)
        if number in others_at:
            schema, watched = others_at[number]
        if number in at_batch or number in others_at:
            by = scored_by(rule_sets[-1], shards, 1 + schema, SCHEMAS[schema], watched)
        end = dict(newest.end) | {each.place: each.offset + 1 for each in of_job}
        newest = JobBatch(number, end, by)
        job.batch(of_job, by)
        for scored in replica.begin_batch(newest):
            note(said, scored, features=False)

    for what, size in plan:
        if what == "take":
            for scored in replica.take(messages[taken : taken + size], True):
                note(said, scored)
            taken = min(taken + size, len(messages))
        elif what == "batch":
            batch(size)
        elif what == "check":
            asked = [TakenMessage((0, CHECK), at, each.value) for at, each in enumerate(messages[taken:][:size])]
            list(replica.check(asked, True))
        else:
            # What was said of these may not be the last word: in the job others may come before them, or other rules
            # count by then, and who said it is gone.
            for each in (of for step in replica._steps for of in step.messages):
                said.pop((each.place, each.offset), None)
            replica = begun(job, newest)
            taken = done
    list_rest = messages[taken:]
    for scored in replica.take(list_rest, True):
        note(said, scored)
    while done < len(messages):
        batch(20)
    batch(1)
    assert replica.unsettled == 0
    return said, job.said


NUMBERS = st.integers(1, 8)
PLAYED = (
    st.builds(operator.add, EVENTS, EVENTS),
    LAGS_MS,
    PLANS,
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3]),
    st.lists(st.tuples(NUMBERS, st.integers(0, 2)), max_size=4),
    st.lists(st.tuples(NUMBERS, st.integers(0, 1), st.integers(0, 2)), max_size=4),
)


@settings(max_examples=examples(120), deadline=None)
@given(*PLAYED)
def test_what_was_said_last_of_a_payment_is_what_the_job_says(
    events, lags_ms, plan, partitions, shards, changes, others
):
    """Whatever comes first, the message or the job, and the state read anew in between.

    Rules, a list that one looks into, and the event schema change.
    """
    with mock.patch.object(shard_clock, "QUORUM", 10**9):
        said, by_job = play(events, lags_ms, plan, partitions, shards, changes, others)
    assert {place: {name: by_job[place][name] for name in each} for place, each in said.items()} == said


@settings(max_examples=examples(120), deadline=None)
@given(*PLAYED)
def test_where_keys_are_evicted_what_both_call_warm_is_the_same(
    events, lags_ms, plan, partitions, shards, changes, others
):
    """A replica has all keys in one shard, and evicts others than the job; both say where something may be missing."""
    with mock.patch.multiple(shard_clock, VOTERS=3, QUORUM=2), mock.patch.object(eviction, "SPARE_VISITS", 100):
        said, by_job = play(events, lags_ms, plan, partitions, shards, changes, others)
    for place, each in said.items():
        found, expected = (
            {name: of for name, of in one.get("features", {}).items() if of["warm"]} for one in (each, by_job[place])
        )
        both = found.keys() & expected.keys()
        assert {name: found[name] for name in both} == {name: expected[name] for name in both}


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS, LAGS_MS, st.integers(0, 60))
def test_a_check_says_what_a_payment_gets_that_comes_next_and_changes_nothing(events, lags_ms, at):
    messages = messages_of(stream(events, lags_ms), 1)
    by = scored_by(first_rule_set([*RULES, OVER_ALERTS]), 1)
    with mock.patch.object(shard_clock, "QUORUM", 10**9):
        stores = _empty()
        first = Replica(*stores, JobBatch(0, {}, by), READ)
        list(first.take(messages[:at], True))
        before = _contents(*stores)
        asked = [each._replace(place=(0, CHECK), offset=number) for number, each in enumerate(messages[at : at + 9])]
        checked = {}
        for scored in first.check(asked, True):
            note(checked, scored)
        assert _contents(*stores) == before
        for number, each in enumerate(messages[at : at + 9]):
            other = Replica(*_empty(), JobBatch(0, {}, by), READ)
            list(other.take(messages[:at], True))
            expected = {}
            for scored in other.take([each], True):
                note(expected, scored)
            (wanted,) = expected.values()
            found = checked[(0, CHECK), number]
            assert _anywhere(found) == _anywhere(wanted)


def _empty():
    return memory_store(), memory_stores()


def _contents(store, driver):
    """All that lies in stores."""
    return [
        dict(zip(sorted(keys), entries.read(ByteStrings.of(sorted(keys))).to_list(), strict=True))
        for each in (store, *vars(driver).values())
        for entries in vars(each).values()
        for keys in [[*entries.list_keys()]]
    ]


def _anywhere(said):
    """What was said, without where the payment lies and when it came."""
    alerts = {
        name: [
            {key: value for key, value in each.items() if key not in ("source", "position", "ingested_at")}
            for each in said[name]
        ]
        for name in ("alerts", "held")
    }
    return said | alerts


def test_where_too_much_is_ahead_of_the_job_and_its_rules_change_the_state_is_read_anew():
    messages = messages_of([row(number, "p1", number) for number in range(1, 40)], 1)
    by = scored_by(first_rule_set(RULES), 1)
    with mock.patch.object(replicas, "MOST_UNSETTLED", 10):
        replica = Replica(*_empty(), JobBatch(0, {(0, "payments"): 0}, by), READ)
        for begin in range(0, 39, 3):
            list(replica.take(messages[begin : begin + 3]))
        assert replica.unsettled <= 10
        assert list(replica.begin_batch(JobBatch(1, {(0, "payments"): 5}, by))) == []
        changed = scored_by(next_rule_set(by.rule_set, OTHER[0], (), 10), 1)
        with pytest.raises(NeedsState):
            list(replica.begin_batch(JobBatch(2, {(0, "payments"): 9}, changed)))


def test_where_a_topic_was_created_again_the_state_is_read_anew():
    """Its offsets begin anew, so what was taken in of it says nothing about what is in it now."""
    by = scored_by(first_rule_set(RULES), 1)
    replica = Replica(*_empty(), JobBatch(0, {(0, "payments"): 3}, by, {"payments": "payments"}), READ)
    with pytest.raises(NeedsState):
        list(replica.begin_batch(JobBatch(1, {(0, "payments"): 9}, by, {"payments": "payments#2"})))


WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "1", "22"])), max_size=8)


@given(st.lists(WRITES, max_size=6), st.integers(0, 6))
def test_what_was_written_is_undone_step_by_step(steps, kept):
    """A key may be written, or removed, several times in a step."""
    entries, undoing, seen, journals = MemoryEntries(), Undoing(), [], []
    noted = undoing.store(ShardStore(entries, MemoryEntries(), MemoryEntries(), MemoryEntries())).heads
    for step in steps:
        seen.append(dict(entries.data))
        for key, value in step:
            if value:
                noted.put([(key.encode(), value.encode())])
            elif key.encode() in entries.data:
                noted.remove(ByteStrings.of([key.encode()]))
        journals.append(undoing.cut())
    seen.append(dict(entries.data))
    while len(journals) > kept:
        undo(journals.pop())
    assert entries.data == seen[len(journals)]
