"""What processes hold, and what they will soon run out of: of real processes, and of containers as their files say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buckets.monitor import live as module
from buckets.monitor.live import shortages
from buckets.monitor.processes import DRIVER, JVM, WORKERS, by_kind, job_processes, process_tree

WAITING = "import sys; print(flush=True); sys.stdin.read()"
FULL = """
import resource
from buckets.monitor.processes import job_processes
from buckets.monitor.live import shortages
import os
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
held = [open(os.devnull) for _ in range({files})]
print(*shortages(job_processes(os.getpid())), sep="\\n")
"""


@pytest.fixture
def no_container(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(module, "_CGROUP", tmp_path)
    return tmp_path


def test_what_this_process_opens_and_takes_is_seen(tmp_path):
    (before,) = [use for use in job_processes(os.getpid()) if use.kind == DRIVER]
    held = [(tmp_path / str(number)).open("w") for number in range(50)]
    memory = bytearray(os.urandom(1) * (64 << 20))
    (after,) = [use for use in job_processes(os.getpid()) if use.kind == DRIVER]
    assert after.descriptors - before.descriptors == len(held)
    assert after.resident_bytes - before.resident_bytes > len(memory) / 2
    assert after.cpu_s >= before.cpu_s > 0
    assert after.threads >= 1
    for file in held:
        file.close()


def test_processes_that_a_process_has_started_are_found_and_gone_when_they_end():
    """Other tests of this process may have left a JVM of their session."""
    before = by_kind(job_processes(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in process_tree(os.getpid())
        kinds = by_kind(job_processes(os.getpid()))
        assert kinds[DRIVER]["processes"] == 1
        assert kinds[WORKERS]["processes"] == before.get(WORKERS, {}).get("processes", 0) + 1
        assert kinds.get(JVM, {}).get("processes") == before.get(JVM, {}).get("processes")
        child.communicate()
    assert child.pid not in process_tree(os.getpid())


@pytest.mark.parametrize(("files", "told"), [(10, False), (90, True)])
def test_descriptors_are_told_of_before_they_run_out(files, told):
    printed = subprocess.run(
        [sys.executable, "-c", FULL.format(files=files)], capture_output=True, text=True, check=True
    ).stdout
    assert ("descriptors run out: driver, process " in printed) == told, printed
    assert ("may have 100; start the job with a higher limit (`ulimit -n`" in printed) == told


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"pids.current": "90", "pids.max": "100"}, "threads run out: this container has 90 and may have 100"),
        ({"pids.current": "70", "pids.max": "100"}, None),
        ({"pids.current": "90", "pids.max": "max"}, None),
        ({"memory.current": str(99 << 30), "memory.max": str(100 << 30)}, "memory runs out: 1.0 of 100.0 GiB of this"),
        (
            {"memory.current": str(99 << 30), "memory.max": str(100 << 30), "memory.stat": f"inactive_file {50 << 30}"},
            None,
        ),
        ({"memory.current": str(99 << 30), "memory.max": "max"}, None),
    ],
)
def test_threads_and_memory_of_a_container_are_told_of_before_they_run_out(no_container, files, said):
    for name, content in files.items():
        (no_container / name).write_text(f"{content}\n")
    lines = shortages([])
    assert [line.startswith(said) for line in lines] == ([True] if said else [])
