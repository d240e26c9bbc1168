"""Locks a checkpoint for one process at a time: by a lock file, or in an object store by a lease that is renewed."""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Self

from buckets.checkpoint.record_files import HELD
from buckets.checkpoint.source_offsets import lock_file, records_folder
from buckets.clock import epoch_ms, machine_start
from buckets.errors import BucketsError, first_line
from buckets.stores.store_path import PATIENCE_S, StorePath

VALID_S = 15.0  # How long a lease is valid without renewal
RENEW_S = 3.0
MARGIN_S = 5.0  # How long before its end the holder gives it up, so that running writes end in time
_LOOK_S = 1.0
_ANSWER_WITHIN_S = 2.0  # How long a renewal may take before the next attempt
_LAST_ANSWER_S = 0.5


@dataclass(frozen=True)
class LeaseRecord:
    """The content of the lease object."""

    holder: str  # a random text for each taking; empty once released
    epoch: int  # the number of holders so far
    process: str  # the holder's process, in words
    life: str  # the holder's machine and process, so that its end is noticed on the same machine
    renewed_ms: int  # when it was renewed, in ms since the epoch

    def encode(self) -> bytes:
        """Encode it as JSON."""
        return json.dumps(asdict(self)).encode()


class LostLease(BucketsError):
    """A lease that is no longer held, so that nothing more may be written."""

    def __init__(self, checkpoint: Path, reason: str, is_taken: bool) -> None:
        """State the reason; a lease that no other process has taken may be taken again once the store answers."""
        self.reason, self.is_taken = f"the lease of checkpoint {checkpoint} is lost: {reason}", is_taken
        super().__init__(
            f"{self.reason}; nothing more is written, and whoever holds the lease goes on with the batch; start the "
            "job again if nobody does"
        )


class InUse(BucketsError):
    """A checkpoint that another process holds."""

    condition = "CHECKPOINT_IN_USE"


class Unwritable(BucketsError):
    """A checkpoint that cannot be created."""

    condition = "CHECKPOINT_UNWRITABLE"

    def __init__(self, checkpoint: Path, error: OSError) -> None:
        """State the operating system's reason."""
        super().__init__(f"checkpoint {checkpoint}: cannot be made ({error.strerror}); name another folder")


_HELD: set[str] = set()  # Holders in this process that have not released


class Lease:
    """The lease of a checkpoint, taken and released any number of times."""

    def __init__(self, checkpoint: Path, on_lost: Callable[[LostLease], None] | None = None) -> None:
        """Hold no lease yet; `on_lost` is called from another thread when the lease is lost."""
        self._checkpoint, self._object = checkpoint, _object_of(checkpoint)
        self._on_lost = on_lost or (lambda lost: None)
        self._record: LeaseRecord | None = None
        self._tag = ""
        self._until_s = 0.0
        self._lost: LostLease | None = None
        self._ending = threading.Event()
        self._writing = threading.Lock()

    def take(self) -> None:
        """Take the lease unless this object holds it; wait until a lease expires whose holder died elsewhere."""
        if self._record is not None:
            self.check()
            return
        taken = None
        while taken is None:
            began_s = time.monotonic()
            # Meanwhile a holder may remove its record on release.
            with contextlib.suppress(FileNotFoundError):
                taken = self._taken()
        (self._record, self._tag), self._lost = taken, None
        self._until_s = began_s + VALID_S - MARGIN_S
        self._ending = threading.Event()
        HELD[self._checkpoint] = {}
        threading.Thread(target=self._renew_on, args=(self._ending,), name="lease", daemon=True).start()

    def _taken(self) -> tuple[LeaseRecord, str] | None:
        """Try to take the lease; return its record and tag, None if another process was faster."""
        mine = LeaseRecord(uuid.uuid4().hex, 1, f"{os.getpid()} of {socket.gethostname()}", _life(), epoch_ms())
        tag = None
        _HELD.add(mine.holder)
        try:
            tag = self._object.write_first(mine.encode())
            if tag is None:
                there, before = _ended(self._checkpoint, self._object)
                mine = replace(mine, epoch=there.epoch + 1, renewed_ms=epoch_ms())
                tag = self._object.write_over(mine.encode(), before)
        finally:
            if tag is None:
                _HELD.discard(mine.holder)
        return None if tag is None else (mine, tag)

    def check(self) -> None:
        """Check before a write that the lease is still held; raises `LostLease` if not."""
        if self._record is not None and self._lost is None and time.monotonic() >= self._until_s:
            self._lost = self._expired("")
        if self._lost is not None:
            raise self._lost

    def release(self) -> None:
        """Give the lease back, and delete its record if nothing else lies beside it."""
        self._ending.set()
        with self._writing:
            record, self._record = self._record, None
            HELD.pop(self._checkpoint, None)
            if record is not None:
                _HELD.discard(record.holder)
            if record is None or self._lost is not None:
                return
            try:
                if [*records_folder(self._checkpoint).iterdir()] == [self._object]:
                    self._object.unlink()
                else:
                    self._object.write_over(replace(record, holder="").encode(), self._tag)
            except OSError:
                return  # it expires by itself

    def _renew_on(self, ending: threading.Event) -> None:
        while not ending.wait(min(RENEW_S, max(0.0, self._until_s - time.monotonic()))):
            with self._writing:
                if self._record is None or ending.is_set():
                    return
                lost = self._renewed(self._record)
            if lost is not None and not ending.is_set():
                self._lost = lost
                self._on_lost(lost)
                return

    def _renewed(self, record: LeaseRecord) -> LostLease | None:
        """Renew the lease; return the reason if it is lost, else None."""
        began_s, renewed = time.monotonic(), replace(record, renewed_ms=epoch_ms())
        # One last short attempt at its end: a holder that was delayed for long may still have it.
        within_s = min(_ANSWER_WITHIN_S, max(_LAST_ANSWER_S, self._until_s - began_s))
        try:
            tag = self._object.write_over(renewed.encode(), self._tag, within_s)
            if tag is None:
                there, tag = _read(self._object, within_s)
                if there.holder != record.holder:
                    return LostLease(self._checkpoint, f"process {there.process} has taken it", is_taken=True)
        except (OSError, ValueError) as error:
            return self._expired(f" ({first_line(error)})") if time.monotonic() >= self._until_s else None
        self._tag, self._until_s = tag, began_s + VALID_S - MARGIN_S
        return None

    def _expired(self, fault: str) -> LostLease:
        return LostLease(
            self._checkpoint, f"it could not be renewed for {VALID_S - MARGIN_S:g} s{fault}", is_taken=False
        )


def _ended(checkpoint: Path, record: StorePath) -> tuple[LeaseRecord, str]:
    """Wait until a lease has ended, and return its record with its tag."""
    there, tag = _read(record)
    until_s, first_tag = time.monotonic() + VALID_S, tag
    while not _is_over(there) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        there, tag = _read(record)
        if tag != first_tag and not _is_over(there):
            raise _in_use(checkpoint, there.process)
    return there, tag


def _is_over(record: LeaseRecord) -> bool:
    """Return whether a lease was released, or its holder was this process earlier, or a dead one of this machine.

    A process that released or restarted while the store did not answer has left its record behind.
    """
    if not record.holder:
        return True
    if record.life and record.life == _life():
        return record.holder not in _HELD
    machine, _, process = record.life.rpartition("/")
    here, _, _ = _life().rpartition("/")
    return bool(machine) and machine == here and _life(int(process.split("-")[0])) != record.life


def _life(pid: int | None = None) -> str:
    """Return an identity of a process, unique across reboots and containers; empty if unknown."""
    pid = os.getpid() if pid is None else pid
    try:
        space = os.readlink("/proc/self/ns/pid")
        began = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    start = machine_start()
    return f"{start}/{space}/{pid}-{began}" if start else ""


def _object_of(checkpoint: Path) -> StorePath:
    record = lock_file(checkpoint)
    assert isinstance(record, StorePath)
    return record


def _read(record: StorePath, patience_s: float = PATIENCE_S) -> tuple[LeaseRecord, str]:
    data, tag = record.read_tagged(patience_s)
    return LeaseRecord(**json.loads(data)), tag


_MOST_FAULTS = 10  # How often creating the folder of a lock is tried


class FileLock:
    """The lock of a checkpoint, taken and released any number of times."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._file: IO[str] | None = None
        self._made: list[Path] = []

    def take(self) -> None:
        """Lock the checkpoint so that no other query runs on it; does nothing if this object holds the lock."""
        path, faults = lock_file(self._checkpoint), 0
        while self._file is None:
            try:
                self._made += [folder for folder in (path.parent, self._checkpoint) if not folder.exists()]
                path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.ExitStack() as stack:
                    file = stack.enter_context(path.open("a+", encoding="utf-8"))
                    _lock(file, self._checkpoint)
                    # Meanwhile another start may have been refused, and have removed the file.
                    if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                        stack.pop_all()
                        self._file = file
            except OSError as error:
                faults += 1  # If another start has removed a folder meanwhile, the next attempt creates it.
                if faults == _MOST_FAULTS or not isinstance(error, FileNotFoundError | FileExistsError):
                    raise Unwritable(self._checkpoint, error) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Unlock, and delete what `take` created unless other files have been added."""
        if self._file is None:
            return
        path = lock_file(self._checkpoint)
        with contextlib.suppress(OSError):
            if [*path.parent.iterdir()] == [path]:
                path.unlink()
                for folder in self._made:
                    folder.rmdir()
        self._file.close()
        self._file, self._made = None, []


def _lock(file: IO[str], checkpoint: Path) -> None:
    """Lock a file until it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise _in_use(checkpoint, f"{file.read() or 'unknown'} of this machine") from None


def _in_use(checkpoint: Path, process: str) -> InUse:
    message = (
        f"checkpoint {checkpoint} is in use by process {process}, and two would write over each other; stop that one "
        "first, or name another checkpoint"
    )
    return InUse(message)


class Lock:
    """The lock of a checkpoint, taken and released any number of times: of a file, or a lease in an object store."""

    def __init__(self, checkpoint: Path, on_lost: Callable[[LostLease], None] | None = None) -> None:
        """Hold no lock yet; `on_lost` is called from another thread once a lease is lost and nothing may be written."""
        in_store = isinstance(checkpoint, StorePath)
        self._held: FileLock | Lease = Lease(checkpoint, on_lost) if in_store else FileLock(checkpoint)
        self.take, self.release = self._held.take, self._held.release

    def check(self) -> None:
        """Check before a write that the lock is still held; a file lock cannot be lost while the process lives."""
        if isinstance(self._held, Lease):
            self._held.check()

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        """Release the lock when its owner has dropped it."""
        self.release()


def check_free(checkpoint: Path) -> None:
    """Check that no query runs on a checkpoint; nothing is written."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if isinstance(checkpoint, StorePath):
            there, _ = _read(_object_of(checkpoint))
            if not _is_over(there) and epoch_ms() - there.renewed_ms < VALID_S * 1000:
                raise _in_use(checkpoint, there.process)
        else:
            with lock_file(checkpoint).open("r+", encoding="utf-8") as file:
                _lock(file, checkpoint)
