"""A file or folder of an object store, as a path.

A checkpoint, its tables and any other folder may be in a store: the code's operations on paths work on objects as well.
A store has no folders, so none are created or removed; an object appears whole once it is written, and stays whole.
Operations that only a file system supports, such as memory-mapping, raise an error that says so, and never use a local
folder named `s3a:`.

Endpoint, region and keys come from the environment, under the names that the tools of all vendors know
(`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, …).
"""

import errno
import hashlib
import io
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from html import unescape
from pathlib import PosixPath, PurePath, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from buckets.errors import BucketsError, Outage, first_line
from buckets.extras import extra
from buckets.web_address import is_address

if TYPE_CHECKING:  # it takes 35 ms to import, and most jobs need none of it
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

T = TypeVar("T")
PATIENCE_S = 30.0  # How long a request is retried that a store has not answered properly
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0


def retried(ask: Callable[[], T], passes_within_s: Callable[[Exception], float]) -> T:
    """Repeat a question that may be asked several times until it is answered, or fails in a way that will not pass."""
    began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except Exception as error:
            if time.monotonic() - began_s >= passes_within_s(error):
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


ENDPOINT: Final = "AWS_ENDPOINT_URL"
_ENDPOINTS = (ENDPOINT, f"{ENDPOINT}_S3", "AWS_ENDPOINT")
_VENDORS = ("AWS_", "AZURE_")


def check_environment() -> None:
    """Check that clients of stores can be built from the environment; else their libraries would end the program."""
    for name in _ENDPOINTS:
        endpoint = os.environ.get(name)
        if endpoint is not None and not is_address(endpoint):
            message = f"{name}: {endpoint!r} is not an address, as in http://localhost:9000; correct it, or unset it"
            raise BucketsError(message)
    for name, value in os.environ.items():
        if name.startswith(_VENDORS) and not value.isprintable():
            message = f"{name}: holds a line end or another character that cannot be seen; take it out"
            raise BucketsError(message)


_ATTEMPT_S = 3.0  # How long the library itself retries before it reports, so that a signal is handled
_CONNECT_WITHIN = timedelta(seconds=5)
_READ_BYTES = 1 << 20  # The least that is read of an object that is read in parts
_TAKEN = ("AlreadyExistsError", "PreconditionError", "FileNotFoundError", "NotFoundError")
"""Errors of obstore when another writer was faster; by name, since obstore is imported late."""
_ALLOW_HTTP = "AWS_ALLOW_HTTP"


class StorePath(PosixPath):
    """A path such as `s3a://BUCKET/FOLDER/FILE`; faults of a store raise OSError, as with files."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}"

    def __fspath__(self) -> str:
        """Refuse to be used as a local file."""
        message = f"{self} lies in an object store, and a file or folder of this machine is needed here; name one"
        raise BucketsError(message)

    def is_absolute(self) -> bool:
        """Return True."""
        return True

    def resolve(self, strict: bool = False) -> Self:
        """Return the path itself: a store has no links."""
        return self

    def absolute(self) -> Self:
        """Return the path itself."""
        return self

    def relative_to(self, *other: PurePath, **more: Any) -> PurePosixPath:  # type: ignore[override]
        """Return the path relative to a folder."""
        return PurePosixPath(*self.parts).relative_to(*(PurePosixPath(*each.parts) for each in other))

    @property
    def key(self) -> str:
        """The name of the object in its bucket."""
        return "/".join(self.parts[2:])

    @property
    def _object(self) -> str:
        """The object's name; a bucket has none, and a server asked for an object without one would list the bucket."""
        if not self.key:
            raise IsADirectoryError(errno.EISDIR, "is a bucket", str(self))
        return self.key

    def _asked(self, ask: Callable[["ObjectStore"], T], patience_s: float | None = None) -> T:
        """Ask the bucket, retrying for `patience_s` seconds if it does not answer; raises OSError for faults."""
        patience_s = PATIENCE_S if patience_s is None else patience_s

        def passes_within_s(error: Exception) -> float:
            return patience_s if type(error).__name__ == "GenericError" and not is_mistaken(error) else 0.0

        try:
            store = store_of(f"{self.parts[0]}//{self.parts[1]}", os.environ.get(ENDPOINT, ""), patience_s)
            return retried(lambda: ask(store), passes_within_s)
        except FileNotFoundError as error:
            if _fault(str(error))[0] not in _NOT_THERE:  # no bucket, or no such user
                raise store_error(self, error) from error
            message = f"{self} is not there"
            raise FileNotFoundError(message) from error
        except Exception as error:
            if not type(error).__module__.startswith("obstore"):
                raise
            raise store_error(self, error) from error

    def read_bytes(self) -> bytes:
        """Return the contents of an object."""
        return self._asked(lambda store: bytes(store.get(self._object).bytes()))

    def read_tagged(self, patience_s: float = PATIENCE_S) -> tuple[bytes, str]:
        """Return the contents of an object, and the tag that `write_over` compares."""

        def get(store: "ObjectStore") -> tuple[bytes, str]:
            found = store.get(self._object)
            return bytes(found.bytes()), str(found.meta["e_tag"])

        return self._asked(get, patience_s)

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Return the contents of an object as text."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def _head(self) -> "ObjectMeta":
        return self._asked(lambda store: store.head(self._object))

    def tag(self) -> str:
        """Return an object's tag, which changes when the object is replaced."""
        return str(self._head()["e_tag"])

    def write_bytes(self, data: Any) -> int:
        """Write an object, replacing any existing one."""
        self._asked(lambda store: store.put(self._object, bytes(data)))
        return len(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Write an object of text."""
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def write_first(self, data: bytes) -> str | None:
        """Create an object and return its tag; None if it exists. Of several writers one succeeds."""
        return self._put(data, "create", PATIENCE_S)

    def write_over(self, data: bytes, tag: str, patience_s: float = PATIENCE_S) -> str | None:
        """Replace the object with this tag and return the new tag; None if another writer was faster."""
        return self._put(data, {"e_tag": tag}, patience_s)

    def _put(self, data: bytes, mode: Any, patience_s: float) -> str | None:
        """Write an object under a condition and return its tag; None if another writer was faster."""

        def put(store: "ObjectStore") -> str | None:
            try:
                return str(store.put(self._object, data, mode=mode, use_multipart=False)["e_tag"])
            except Exception as error:
                if type(error).__name__ not in _TAKEN:
                    raise
                return None

        tag = self._asked(put, patience_s)
        if tag is None:
            # It may hold just this data: a write whose answer was lost, and was retried.
            with suppress(FileNotFoundError):
                there, its_tag = self.read_tagged()
                return its_tag if there == data else None
        return tag

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove an object if it exists."""
        self._asked(lambda store: store.delete(self._object))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists with its first object."""

    def rmdir(self) -> None:
        """Do nothing: a folder vanishes with its last object."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return an object's size and time of writing, with a number derived from its tag as inode."""
        meta = self._head()
        number = int.from_bytes(hashlib.blake2b(str(meta["e_tag"]).encode(), digest_size=7).digest(), "big")
        written_s = meta["last_modified"].timestamp()
        times = {"st_mtime": written_s, "st_mtime_ns": round(written_s * 1000) * 1_000_000, "st_ctime_ns": 0}
        return os.stat_result((0o100644, number, 0, 1, 0, 0, meta["size"], 0, int(written_s), 0), times)

    def owner(self, *_: Any, **__: Any) -> str:
        """Raise OSError: a store does not report an object's owner."""
        message = f"{self} has no owner"
        raise OSError(message)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is an object, or a folder with at least one."""
        return self.is_file() or self.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is an object."""
        try:
            return bool(self.key) and self._head() is not None
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there are objects below the path."""
        prefix = f"{self.key}/" if self.key else None
        return self._asked(lambda store: any(store.list(prefix=prefix, chunk_size=1)))

    def _content(self) -> tuple[list[str], dict[str, "ObjectMeta"]]:
        """Return the names of the folders in a folder, and the metadata of its objects."""
        found = self._asked(lambda store: store.list_with_delimiter(self.key or None))
        folders = [PurePosixPath(name).name for name in found["common_prefixes"]]
        return folders, {PurePosixPath(meta["path"]).name: meta for meta in found["objects"]}

    def iterdir(self) -> Iterator[Self]:  # type: ignore[override]
        """Yield the contents of a folder."""
        folders, objects = self._content()
        yield from (self / name for name in (*folders, *objects))

    def sizes(self) -> Iterator[tuple[Self, int]]:
        """Yield the objects in a folder with their sizes in bytes."""
        return ((self / name, meta["size"]) for name, meta in self._content()[1].items())

    def walk(self) -> Iterator[tuple[Self, list[str], dict[str, int]]]:
        """Yield each folder from here on, with its folders, and its objects with the times when they were written.

        Times are in ms since the epoch, to the second as in `stat`, since not all stores report more. Folders that the
        caller removes from the list are not walked.
        """
        folders, objects = self._content()
        yield self, folders, {name: int(meta["last_modified"].timestamp()) * 1000 for name, meta in objects.items()}
        for name in folders:
            yield from (self / name).walk()

    def rglob(self, pattern: str, **_: Any) -> Iterator[Self]:  # type: ignore[override]
        """Yield the objects below a folder whose names match."""
        return (path for path in self._below() if path.match(pattern))

    def glob(self, pattern: str, **_: Any) -> Iterator[Self]:  # type: ignore[override]
        """Yield the objects below a folder whose relative path matches, name by name."""
        parts = len(PurePosixPath(pattern).parts)
        found = self.iterdir() if parts == 1 else self._below()
        return (path for path in found if len(path.parts) == len(self.parts) + parts and path.match(pattern))

    def _below(self) -> Iterator[Self]:
        found = self._asked(lambda store: list(store.list(prefix=self.key or None)))
        for chunk in found:
            for meta in chunk:
                yield self.joinpath(PurePosixPath(meta["path"]).relative_to(self.key or "."))

    def open(self, mode: str = "r", *_: Any, **more: Any) -> IO[Any]:  # type: ignore[override]
        """Open an object for reading; it is fetched in parts as needed."""
        if mode not in ("r", "rb"):
            self.__fspath__()
        reader = io.BufferedReader(_Reader(self), _READ_BYTES)
        return reader if mode == "rb" else cast("IO[Any]", io.TextIOWrapper(reader, more.get("encoding") or "utf-8"))


class _Reader(io.RawIOBase):
    """The bytes of an object, fetched on demand."""

    def __init__(self, path: StorePath) -> None:
        super().__init__()
        self._path, self._at, self._size = path, 0, path.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        read = self._path._asked(lambda store: store.get_range(self._path._object, start=self._at, length=wanted))
        buffer[:wanted] = memoryview(read)
        self._at += wanted
        return wanted


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED = ("PermissionDeniedError", "UnauthenticatedError")
_STATUS = re.compile(r"status(?: code)?[:\s↳]+([34]\d\d)\b")
_OF_KEYS = ("401", "403")  # Codes for a lack of permission, or from a server that requires keys
_PASSING = ("408", "409", "412", "425", "429")  # Codes after which a retry may succeed
_FAULT = re.compile(r"<Code>(\w+)</Code>\s*(?:<Message>([^<]*)</Message>)?")
_NOT_THERE = ("", "NoSuchKey")
_NO_BUCKET, _NO_NAME, _TOO_SLOW = "NoSuchBucket", "InvalidBucketName", "RequestTimeout"


class StoreError(BucketsError, OSError):
    """A request that a store has refused or failed, explained in one line."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.strerror = why or message


class StoreAway(StoreError, Outage):
    """A store that does not answer, which may be temporary."""


def away_behind(error: BaseException | None) -> StoreAway | None:
    """Return the unreachable store that caused an error; None if it has another cause."""
    while error is not None and not isinstance(error, StoreAway):
        error = error.__cause__ or error.__context__
    return error


def store_error(path: PurePath | str, error: Exception) -> StoreError:
    """Translate a library's error about a path."""
    code, told = _fault(str(error))
    if code in (_NO_BUCKET, _NO_NAME):
        bucket = str(path).split("/")[2]
        why = f"there is no bucket {bucket}" if code == _NO_BUCKET else f"no bucket can be called {bucket}"
        remedy = "create it, or correct the name" if code == _NO_BUCKET else "correct the name"
        return StoreError(f"{path}: {why}; {remedy}", why)
    if type(error).__name__ in _REFUSED or _status(error) in _OF_KEYS:
        why = "the store refuses it"
        return StoreError(f"{path}: {why}; see who may, and which keys are in the environment", why)
    if is_mistaken(error):
        why = f"the store refuses it ({told or _reason(error)})"
        return StoreError(f"{path}: {why}; see the keys, AWS_ENDPOINT_URL and AWS_REGION in the environment", why)
    return store_away(path, _reason(error))


def store_away(path: PurePath | str, reason: str) -> StoreAway:
    """Return the error that a store does not answer about a path, with the reason."""
    why = f"the store does not answer as it should ({reason})"
    return StoreAway(f"{path}: {why}; see that it runs, and AWS_ENDPOINT_URL and AWS_REGION in the environment", why)


def is_mistaken(error: Exception) -> bool:
    """Return whether a store says that the request itself is wrong, so that repeating it would not help."""
    return _status(error) not in ("", *_PASSING) and _fault(str(error))[0] != _TOO_SLOW


def _status(error: Exception) -> str:
    """Return the HTTP status with which a store refuses a request; empty if there is none."""
    found = _STATUS.search(_COLOURS.sub("", str(error)))
    return "" if found is None else found[1]


def _fault(text: str) -> tuple[str, str]:
    """Return the code and the text of a store's error answer; empty if it has none."""
    found = _FAULT.search(text)
    return ("", "") if found is None else (found[1], unescape(found[2] or "").split("\n")[0][:200].rstrip("."))


def _reason(error: Exception) -> str:
    """Strip URLs and XML bodies from a client's error text."""
    # Delta's text has several coloured lines, the last of which summarises it.
    steps = [line.strip(" \t↳") for line in _COLOURS.sub("", str(error)).splitlines() if "↳" in line]
    told = [part for part in (steps[-1] if steps else first_line(error)).split(" - ") if part]
    return told[-1].split(": <")[0][:200].rstrip(": ")


@lru_cache(maxsize=16)
def store_of(url: str, endpoint: str, patience_s: float) -> "ObjectStore":
    """Return a bucket, reached as the environment says; requests are retried for `patience_s` seconds."""
    check_environment()
    is_plain = endpoint.startswith("http://")
    if is_plain:
        os.environ.setdefault(_ALLOW_HTTP, "true")  # for Delta, which reads the same names
    with extra("s3", "an object store"):
        from obstore.store import from_url

    patience = timedelta(seconds=patience_s)
    return from_url(
        url,
        client_options={
            "timeout": patience,
            "connect_timeout": min(patience, _CONNECT_WITHIN),
            "allow_http": is_plain,
        },
        retry_config={"retry_timeout": min(patience, timedelta(seconds=_ATTEMPT_S)), "max_retries": 20},
    )
