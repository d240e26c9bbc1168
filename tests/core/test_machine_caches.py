"""Caches that the workers of a machine share: the same map, and nothing that is not right is ever gone on with."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from buckets.byte_strings import ByteStrings
from buckets.spark import machine_caches
from buckets.spark.machine_caches import MachineCaches, shards_folder
from buckets.state.layer import Bounds, Layer
from tests.core.test_layer import CHANGES, KEYS, LENGTH, ROOMY, WORKERS, LayerMachine, Store, run

FILES = st.sampled_from(["mark", "entries", "table", "buffer", "held", "segments"])


def end(worker: MachineCaches) -> None:
    """Let go of what a process lets go of when it ends."""
    for shard in worker._mapped.values():
        shard.close()
    worker._mapped.clear()
    worker._taken.clear()


class MachineCachesMachine(LayerMachine):
    """One shard, three workers that share its cache, and a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="buckets-shards-"))
        self.patches = pytest.MonkeyPatch()

    def new_worker(self) -> MachineCaches:
        return MachineCaches(self.folder)

    @rule(worker=WORKERS)
    def worker_begins_anew(self, worker):
        end(self.workers[worker])
        self.workers[worker] = self.new_worker()

    @rule(worker=WORKERS, changes=CHANGES, where=st.sampled_from(["compact", "settle", "numbers"]))
    def worker_is_killed(self, worker, changes, where):
        """Somewhere in the batch; others find what it has changed half."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"buckets.engine.storage.arena.Arena.{where}", killed)
            layer = self.layer(worker, self.store.copy())
            try:
                run(layer, dict(self.model), changes)
                layer.commit()
            except SystemExit:
                pass
        end(self.workers[worker])
        self.workers[worker] = self.new_worker()

    @rule(name=FILES, kept=st.floats(0, 1, exclude_max=True))
    def file_is_cut(self, name, kept):
        for path in self.folder.glob(f"*/{name}"):
            os.truncate(path, int(path.stat().st_size * kept))

    @rule(name=FILES)
    def file_is_removed(self, name):
        for path in self.folder.glob(f"*/{name}"):
            path.unlink()

    @rule()
    def folder_is_removed(self):
        for path in self.folder.iterdir():
            shutil.rmtree(path)

    @rule(release=st.integers(0, 2))
    def release_is_another(self, release):
        self.patches.setattr(machine_caches, "_made_by", lambda: {"version": release})

    @precondition(lambda self: hasattr(self, "workers"))
    @rule(worker=WORKERS)
    def machine_is_restarted(self, worker):
        """Its files are those of another start, or gone."""
        self.patches.setattr(machine_caches, "_made_by", lambda: {"start": self.dice.random()})
        for each in self.workers:
            end(each)
        self.workers = [self.new_worker() for _ in range(3)]

    @rule(is_full=st.booleans())
    def disk_is_full(self, is_full):
        self.patches.setattr(os, "posix_fallocate", no_room if is_full else FALLOCATE)

    def teardown(self):
        super().teardown()
        self.patches.undo()
        for worker in getattr(self, "workers", ()):
            end(worker)
        shutil.rmtree(self.folder)


FALLOCATE = os.posix_fallocate


def no_room(descriptor: int, offset: int, length: int) -> None:
    raise OSError(28, "no space left on device")


def killed(*_: object) -> None:
    raise SystemExit


TestMachineCaches = MachineCachesMachine.TestCase
TestMachineCaches.settings = LENGTH


def batch(store: Store, caches: MachineCaches, value: bytes, bounds: Bounds = ROOMY) -> list[bytes]:
    """Read all keys, and give them a value; return how many entries were read."""
    layer = Layer(store, caches, bounds)
    before = layer.get(KEYS)
    layer.put([(key, value) for key in KEYS])
    layer.commit()
    return before


def test_a_shard_that_changes_workers_reads_its_manifest_and_no_more(tmp_path):
    store, workers = Store(), [MachineCaches(tmp_path) for _ in range(3)]
    for number in range(9):
        store.reads = 0
        before = batch(store, workers[number % 3], b"%d" % number)
        assert before == [b"" if not number else b"%d" % (number - 1)] * len(KEYS)
        assert store.reads == 1
    for worker in workers:
        end(worker)
    store.reads = 0
    assert batch(store, MachineCaches(tmp_path), b"") == [b"8"] * len(KEYS)
    assert store.reads == 1


def test_the_second_of_two_attempts_at_once_reads_the_log(tmp_path):
    store, first, second = Store(), MachineCaches(tmp_path), MachineCaches(tmp_path)
    batch(store, first, b"1")
    running = Layer(store.copy(), first, ROOMY)
    assert running.get(KEYS) == [b"1"] * len(KEYS)
    store.reads = 0
    assert batch(store, second, b"2") == [b"1"] * len(KEYS)
    assert store.reads == 2
    running.put([(KEYS[0], b"of an attempt that comes to nothing")])
    running.commit()
    for worker in (MachineCaches(tmp_path), first, second):
        assert Layer(store.copy(), worker, ROOMY).get(KEYS) == [b"2"] * len(KEYS)


@pytest.mark.parametrize("bounds", [ROOMY, Bounds(1 << 20, 1 << 20, 1)], ids=["roomy", "narrow"])
def test_each_of_several_shards_is_its_workers_own_until_it_is_kept(tmp_path, bounds):
    stores, worker, other = [Store(), Store(), Store()], MachineCaches(tmp_path), MachineCaches(tmp_path)
    for store in stores:
        batch(store, worker, b"1")
    layers = [Layer(store, worker, bounds) for store in stores]
    for number in (2, 3):
        for layer in layers:
            assert layer.get(KEYS) == [b"%d" % (number - 1)] * len(KEYS)
        for store in stores:  # an attempt that comes to nothing
            assert batch(store.copy(), other, b"-" * number) == [b"%d" % (number - 1)] * len(KEYS)
        for layer in layers:
            assert layer.get(KEYS) == [b"%d" % (number - 1)] * len(KEYS)
            layer.put([(key, b"%d" % number) for key in KEYS])
            layer.commit()
        other.let_go()
        layers = [Layer(store, worker, bounds) for store in stores]
    worker.let_go()
    for store in stores:
        assert batch(store.copy(), MachineCaches(tmp_path), b"4") == [b"3"] * len(KEYS)


def test_files_are_of_their_owner_alone_and_those_of_at_most_so_many_shards_stay(tmp_path):
    caches, narrow = MachineCaches(tmp_path), Bounds(1 << 20, 1 << 20, 2)
    for _ in range(5):
        batch(Store(), caches, b"1", narrow)
    paths = [*tmp_path.rglob("*")]
    assert len([*tmp_path.iterdir()]) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o700, 0o600}


@pytest.mark.parametrize("full_from", [0, 1])
def test_where_there_is_no_room_a_worker_goes_on_with_a_cache_of_its_own(tmp_path, monkeypatch, full_from):
    store, caches = Store(), MachineCaches(tmp_path)
    for number in range(5):
        if number == full_from:
            monkeypatch.setattr(os, "posix_fallocate", no_room)
        store.reads = 0
        assert batch(store, caches, b"%d" % number * 9_000) == [b"%d" % abs(number - 1) * 9_000 * (number > 0)] * len(
            KEYS
        )
        was_given_up = number == full_from + 1 == 2
        assert (store.reads > 1) == was_given_up
    assert [*tmp_path.iterdir()] == []


def test_an_arena_grows_and_shrinks_in_its_files(tmp_path):
    store, caches, narrow = Store(), MachineCaches(tmp_path), Bounds(1 << 16, 1 << 16, 1)
    keys = ByteStrings.of([b"key-%d" % number for number in range(20_000)])
    layer = Layer(store, caches, narrow)
    layer.write(keys, keys)
    layer.commit()
    large = sum(path.stat().st_size for path in tmp_path.rglob("*"))
    for number in range(100):
        batch(store, caches, b"%d" % number, narrow)
        layer = Layer(store, caches, narrow)
        layer.write(keys.slice(0, 1_000), keys.slice(number, 1_000 + number))
        layer.commit()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < large / 3
    assert Layer(store, MachineCaches(tmp_path), narrow).read(keys).to_list()[1_000:] == keys.to_list()[1_000:]


def test_the_folder_is_that_of_the_session_or_of_the_executor(tmp_path):
    of_executor = {"SPARK_LOCAL_DIRS": f"{tmp_path},/elsewhere"}
    assert shards_folder({}) is None
    assert shards_folder({"BUCKETS_SHARDS": str(tmp_path / "nowhere" / "at all")}) is None
    assert shards_folder(of_executor) == tmp_path / "shards"
    assert shards_folder(of_executor | {"BUCKETS_SHARDS": str(tmp_path / "of session")}) == tmp_path / "of session"
    assert stat.S_IMODE((tmp_path / "shards").stat().st_mode) == 0o700


WORKING = """
import pickle, sys
from pathlib import Path
from buckets.spark.machine_caches import MachineCaches
from buckets.byte_strings import ByteStrings
from buckets.state.layer import Bounds, Layer
from tests.core.test_layer import Store
folder, kept = map(Path, sys.argv[1:])
store, caches, bounds = Store(), MachineCaches(folder), Bounds(20_000, 10_000, 1)
store.data = pickle.loads(kept.read_bytes())
(number,) = (int(value or b"0") for value in Layer(store, caches, bounds).get([b"number"]))
while True:
    number += 1
    layer = Layer(store, caches, bounds)
    keys = ByteStrings.of([b"%d" % (key * number % 997) for key in range(200)])
    layer.read(keys)
    layer.write(keys, ByteStrings.of([b"%d" % number * (number % 13 + 1)] * 200))
    layer.put([(b"number", b"%d" % number)])
    layer.commit()
    kept.with_suffix(".new").write_bytes(pickle.dumps(store.data))
    kept.with_suffix(".new").replace(kept)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_whatever_a_killed_worker_was_doing_the_next_one_goes_on_from_what_the_state_holds(tmp_path):
    """Each worker does batches until it is killed, at another moment each time."""
    import pickle

    kept = tmp_path / "kept"
    kept.write_bytes(pickle.dumps({}))
    (tmp_path / "shards").mkdir()
    for turn in range(8):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKING, tmp_path / "shards", kept], stdout=subprocess.PIPE, text=True
        )
        first = int(worker.stdout.readline())
        time.sleep(0.01 + turn * 0.0137)
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
        store, plain = Store(), {}
        store.data = pickle.loads(kept.read_bytes())
        shared = Layer(store, MachineCaches(tmp_path / "shards"), Bounds(20_000, 10_000, 1))
        (last,) = map(int, shared.get([b"number"]))
        assert last >= first
        for number in range(1, last + 1):
            plain |= {b"%d" % (key * number % 997): b"%d" % number * (number % 13 + 1) for key in range(200)}
        assert shared.get([*plain]) == [*plain.values()]
        assert sorted(shared.list_keys()) == sorted([*plain, b"number"])
