"""The lease of a checkpoint in a store: one holder at a time, and none that writes after it has lost it."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from buckets.checkpoint import lock as leases
from buckets.checkpoint.lock import Lease, LeaseRecord, Lock, LostLease, check_free
from buckets.checkpoint.source_offsets import lock_file
from buckets.errors import BucketsError
from buckets.stores.location import location
from tests.stores.server import Harm, harmful, in_environment


@pytest.fixture
def hurried(monkeypatch) -> None:
    """Leases that end after two seconds."""
    for name, seconds in (("VALID_S", 2.0), ("RENEW_S", 0.3), ("MARGIN_S", 0.7), ("_LOOK_S", 0.2)):
        monkeypatch.setattr(leases, name, seconds)


def written(checkpoint) -> LeaseRecord:
    return LeaseRecord(**json.loads(lock_file(checkpoint).read_bytes()))


def taken(checkpoint) -> Lock | None:
    lock = Lock(checkpoint)
    try:
        lock.take()
    except BucketsError:
        return None
    return lock


def test_of_starts_at_the_same_moment_on_a_new_checkpoint_one_wins(bucket: str, hurried):
    for attempt in range(5):
        checkpoint = location(f"s3://{bucket}/cp{attempt}")
        with ThreadPoolExecutor(8) as pool:
            locks = [lock for lock in pool.map(lambda _, where=checkpoint: taken(where), range(8)) if lock]
        assert len(locks) == 1
        locks[0].release()
        assert not checkpoint.exists()


def test_a_checkpoint_that_is_held_is_refused_and_says_by_whom(bucket: str, hurried):
    checkpoint = location(f"s3://{bucket}/cp")
    with Lock(checkpoint) as lock:
        lock.take()
        for attempt in (lambda: Lock(checkpoint).take(), lambda: check_free(checkpoint)):
            with pytest.raises(BucketsError, match=f"is in use by process {os.getpid()} of ") as refused:
                attempt()
            assert "\n" not in refused.value.message
        lock.check()
    check_free(checkpoint)


def test_one_that_was_given_back_is_taken_at_once_and_its_number_grows(bucket: str, hurried):
    checkpoint = location(f"s3://{bucket}/cp")
    epochs = []
    for _ in range(3):
        with Lock(checkpoint):
            (checkpoint / "buckets" / "job.json").write_bytes(b"{}")
            epochs.append(written(checkpoint).epoch)
        assert written(checkpoint).holder == ""
    assert epochs == [1, 2, 3]


def test_one_of_a_process_of_this_machine_that_was_killed_is_taken_at_once(bucket: str):
    checkpoint = location(f"s3://{bucket}/cp")
    script = (
        "import sys, os, signal\n"
        "from buckets.checkpoint.lock import Lock\nfrom buckets.stores.location import location\n"
        "lock = Lock(location(sys.argv[1]))\nlock.take()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(checkpoint)], check=False)
    assert written(checkpoint).holder

    began_s = time.monotonic()
    with Lock(checkpoint):
        assert time.monotonic() - began_s < leases.VALID_S / 3
        assert written(checkpoint).epoch == 2


def test_one_of_another_machine_is_waited_for_until_it_has_not_been_renewed_for_its_time(bucket: str, hurried):
    checkpoint = location(f"s3://{bucket}/cp")
    there = LeaseRecord("somebody", 7, "1 of elsewhere", "boot/space/1-2", 0)
    lock_file(checkpoint).write_bytes(there.encode())

    began_s = time.monotonic()
    with Lock(checkpoint):
        assert time.monotonic() - began_s >= leases.VALID_S
        assert written(checkpoint).epoch == 8


def test_a_holder_whose_lease_was_taken_is_told_and_writes_nothing_more(bucket: str, hurried):
    checkpoint, told = location(f"s3://{bucket}/cp"), []
    lost = threading.Event()
    lock = Lock(checkpoint, lambda reason: (told.append(reason), lost.set()))
    lock.take()
    other = LeaseRecord("somebody", 2, "1 of elsewhere", "boot/space/1-2", 0)
    lock_file(checkpoint).write_bytes(other.encode())

    assert lost.wait(5)
    assert told[0].is_taken
    assert "process 1 of elsewhere has taken it" in told[0].message
    with pytest.raises(BucketsError, match="nothing more is written"):
        lock.check()
    lock.release()
    assert written(checkpoint) == other


def test_a_holder_that_cannot_renew_gives_up_before_others_may_take_it(store, bucket: str, hurried):

    harm, told, lost = Harm(), [], threading.Event()
    with harmful(store, harm) as bad, in_environment(bad):
        checkpoint = location(f"s3://{bucket}/cp")
        lock = Lock(checkpoint, lambda reason: (told.append(reason), lost.set()))
        began_s = time.monotonic()
        lock.take()
        harm.refused = 1.0
        while time.monotonic() - began_s < leases.VALID_S:
            try:
                lock.check()
            except BucketsError:
                break
            time.sleep(0.02)
        assert time.monotonic() - began_s < leases.VALID_S
        with pytest.raises(LostLease, match="could not be renewed") as expired:
            lock.check()
        assert not expired.value.is_taken
        lock.release()
        harm.refused = 0.0
        with Lock(checkpoint):
            assert time.monotonic() - began_s < leases.VALID_S + leases.MARGIN_S
            assert written(checkpoint).epoch == 2


def test_a_lease_is_renewed_through_answers_that_are_lost(store, bucket: str, hurried):

    harm = Harm(lost=0.3)
    with harmful(store, harm) as bad, in_environment(bad):
        checkpoint = location(f"s3://{bucket}/cp")
        with Lock(checkpoint) as lock:
            for _ in range(30):
                time.sleep(0.1)
                lock.check()
    assert harm.counts["lost"] > 2


def _count(address: str, rounds: int, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    checkpoint = location(address)
    for _ in range(rounds):
        while True:
            held = Lease(checkpoint)
            try:
                held.take()
            except BucketsError:
                time.sleep(0.05)
                continue
            break
        counter = checkpoint / "count"
        now = int(counter.read_bytes()) if counter.exists() else 0
        held.check()
        time.sleep(0.01)
        counter.write_bytes(b"%d" % (now + 1))
        held.release()


def test_processes_that_take_turns_lose_no_update(store, bucket: str):
    address, rounds = f"s3://{bucket}/cp", 5
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count, args=(address, rounds, dict(store.environment))) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (location(address) / "count").read_bytes() == b"%d" % (3 * rounds)
