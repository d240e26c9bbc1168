"""The layer before the store is a plain map, through any batches, workers, failures and repeated attempts."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from buckets.byte_strings import ByteStrings
from buckets.engine.stages.in_memory import MemoryEntries
from buckets.engine.storage.shard_store import HEADS, LOG, SCHEDULE, Section, section_of
from buckets.errors import BucketsError
from buckets.state import live_log as cache_module
from buckets.state.layer import HISTORY, Bounds, Layer, begin_log
from buckets.state.live_log import Caches, LogManifest, PrivateCaches, decode_segment, encode_segment
from tests.laws import examples

KEYS = [f"key-{number}".encode() for number in range(12)]
VALUES = st.one_of(st.binary(min_size=1, max_size=40), st.integers(1, 3_000).map(bytes))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.lists(st.sampled_from(KEYS), max_size=6)),
        st.tuples(st.just("put"), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)),
        st.tuples(st.just("remove"), st.lists(st.sampled_from(KEYS), max_size=3, unique=True)),
    ),
    max_size=5,
)
WORKERS = st.integers(0, 2)


class Store(MemoryEntries):
    """A map that may be asked to forget what it does not hold, as RocksDB may; counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = 0

    def copy(self) -> "Store":
        copy = Store()
        copy.data.update(self.data)
        return copy

    def get(self, keys):
        self.reads += len(keys)
        return super().get(keys)

    def put(self, entries):
        self.writes += len(entries)
        super().put(entries)

    def remove(self, keys):
        for key in keys.to_list():
            self.data.pop(key, None)


def run(layer: Layer, model: dict[bytes, bytes], changes) -> None:
    """Do to both what a batch does; what is read must be the same."""
    for what, argument in changes:
        if what == "get":
            assert layer.get(argument) == [model.get(key, b"") for key in argument]
        elif what == "put":
            layer.put(list(argument.items()))
            model.update(argument)
        else:
            layer.remove(ByteStrings.of(argument))
            for key in argument:
                model.pop(key, None)


class LayerMachine(RuleBasedStateMachine):
    """One shard, three workers, each with caches of its own, and a plain dictionary."""

    def new_worker(self) -> Caches:
        return PrivateCaches()

    @initialize(
        log=st.sampled_from([0, 100, 400, 10_000]),
        cache=st.sampled_from([0, 1_500, 100_000]),
        is_open=st.sampled_from([0, 100, 1_000]),
        segment=st.sampled_from([1, 150, 10_000]),
        shards=st.integers(1, 2),
        before=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    )
    def begin(self, log, cache, is_open, segment, shards, before):
        """Begin with what a release without a log has left."""
        self.bounds = Bounds(log, cache, shards)
        self.sizes = pytest.MonkeyPatch()
        self.sizes.setattr(cache_module, "OPEN_BYTES", is_open)
        self.sizes.setattr(cache_module, "SEGMENT_BYTES", segment)
        self.store, self.model = Store(), dict(before)
        if before:
            self.store.data.update(before)
            begin_log(self.store)
        self.workers = [self.new_worker() for _ in range(3)]
        self.copies = [(self.store.copy(), dict(self.model))]
        self.dice = random.Random(1)

    def layer(self, worker: int, store: Store) -> Layer:
        return Layer(store, self.workers[worker], self.bounds, lambda: f"{self.dice.getrandbits(64):x}")

    @rule(worker=WORKERS, changes=CHANGES)
    def batch(self, worker, changes):
        layer = self.layer(worker, self.store)
        run(layer, self.model, changes)
        layer.commit()

    @rule(worker=WORKERS, changes=CHANGES, is_done=st.booleans())
    def attempt_that_fails(self, worker, changes, is_done):
        """The worker dies, or another attempt is faster: nothing of this one is in the store."""
        layer = self.layer(worker, self.store.copy())
        run(layer, dict(self.model), changes)
        if is_done:
            layer.commit()

    @rule(workers=st.permutations(range(3)), changes=CHANGES, is_first=st.booleans())
    def two_attempts_at_once(self, workers, changes, is_first):
        stores = [self.store.copy(), self.store.copy()]
        layers = [self.layer(worker, store) for worker, store in zip(workers, stores, strict=False)]
        for layer in layers:
            layer.get(KEYS[:1])
        for layer in layers:
            run(layer, dict(self.model), changes)
        for layer in layers:
            layer.commit()
        run(Layer(Store(), PrivateCaches(), self.bounds), self.model, [each for each in changes if each[0] != "get"])
        self.store = stores[0] if is_first else stores[1]

    @rule(worker=WORKERS)
    def worker_begins_anew(self, worker):
        self.workers[worker] = self.new_worker()

    @rule()
    def checkpoint_is_copied(self):
        self.copies.append((self.store.copy(), dict(self.model)))

    @rule(dice=st.randoms(use_true_random=False))
    def checkpoint_is_restored(self, dice):
        store, model = dice.choice(self.copies)
        self.store, self.model = store.copy(), dict(model)

    @rule(log=st.sampled_from([0, 300, 10_000]))
    def start_with_other_bounds(self, log):
        self.bounds = Bounds(log, self.bounds.cache_bytes, self.bounds.shards)

    @invariant()
    def is_the_map(self):
        if hasattr(self, "store"):
            layer = Layer(self.store, PrivateCaches(), self.bounds)
            assert layer.get(KEYS) == [self.model.get(key, b"") for key in KEYS]
            assert sorted(layer.list_keys()) == sorted(self.model)

    @invariant()
    def nothing_is_left_lying(self):
        """Only live segments are in the store, and caches know no more than they may."""
        if not hasattr(self, "store") or LOG not in self.store.data:
            return
        manifest = LogManifest.decode(self.store.data[LOG])
        live = {LOG + number.to_bytes(8, "big") for number in range(manifest.first, manifest.next)}
        assert {key for key in self.store.data if section_of(key) == LOG} == live | {LOG}
        assert len(manifest.history) <= HISTORY

    def teardown(self):
        if hasattr(self, "sizes"):
            self.sizes.undo()


LENGTH = settings(max_examples=examples(300), stateful_step_count=40)
TestLayer = LayerMachine.TestCase
TestLayer.settings = LENGTH


ROOMY = Bounds(1 << 20, 1 << 20, 1)


def layer_of(store: Store, caches: PrivateCaches) -> Layer:
    return Layer(store, caches, ROOMY)


def test_a_batch_that_follows_on_its_worker_reads_one_entry_and_writes_two():
    store, caches = Store(), PrivateCaches()
    for number in range(5):
        store.reads = store.writes = 0
        layer = layer_of(store, caches)
        assert layer.get(KEYS) == [b"" if not number else b"%d" % (number - 1)] * len(KEYS)
        layer.put([(key, b"%d" % number) for key in KEYS])
        layer.commit()
        assert (store.reads, store.writes) == (1, 2)


@pytest.mark.parametrize(
    ("batches", "segments_read"), [(0, 0), (1, 1), (5, 5), (HISTORY - 1, HISTORY - 1), (HISTORY, HISTORY + 5)]
)
def test_another_worker_reads_what_has_changed_since_it_had_the_shard(batches, segments_read):
    store, first, second = Store(), PrivateCaches(), PrivateCaches()
    for number, caches in enumerate([*[first] * 4, second, *[first] * batches]):
        layer = layer_of(store, caches)
        layer.put([(b"%d" % number, bytes(cache_module.OPEN_BYTES))])
        layer.commit()
    store.reads = 0
    assert layer_of(store, second).get([b"0"]) == [bytes(cache_module.OPEN_BYTES)]
    assert store.reads == 1 + segments_read


def test_sections_share_a_layer():
    store = Store()
    layer = layer_of(store, PrivateCaches())
    heads, schedule = Section(layer, HEADS), Section(layer, SCHEDULE)
    heads.put([(b"a", b"1")])
    schedule.put([(b"a", b"2")])
    assert (heads.get([b"a", b"b"]), schedule.get([b"a", b"b"])) == ([b"1", b""], [b"2", b""])
    assert (list(heads.list_keys()), list(schedule.list_keys())) == ([b"a"], [b"a"])
    heads.remove(ByteStrings.of([b"a"]))
    layer.commit()
    again = layer_of(store, PrivateCaches())
    assert (Section(again, HEADS).get([b"a"]), Section(again, SCHEDULE).get([b"a"])) == ([b""], [b"2"])


def test_what_a_later_release_wrote_is_refused(as_worded):
    store = Store()
    store.put([(LOG, b'{"version":2}')])
    with pytest.raises(BucketsError, check=as_worded):
        layer_of(store, PrivateCaches()).get(KEYS)
    with pytest.raises(BucketsError, check=as_worded):
        decode_segment(b"\2" + encode_segment(ByteStrings.of([b"a"]), ByteStrings.of([b"b"]))[1:])


def test_a_cold_worker_asks_the_store_for_no_new_key_while_all_that_there_is_lies_in_the_log():
    store = Store()
    for number in range(3):
        layer = layer_of(store, PrivateCaches())
        store.reads = 0
        assert layer.get([b"new-%d" % number]) == [b""]
        assert store.reads == 1 + (number > 0)
        layer.put([(b"new-%d" % number, b"here")])
        layer.commit()
    for name in (b"large", b"larger"):
        narrow = Layer(store, PrivateCaches(), Bounds(0, 0, 1))
        narrow.put([(name, bytes(cache_module.OPEN_BYTES))])
        narrow.commit()
    store.reads = 0
    assert layer_of(store, PrivateCaches()).get([b"new-0", b"new-3"]) == [b"here", b""]
    assert store.reads == 1 + 1 + 2
