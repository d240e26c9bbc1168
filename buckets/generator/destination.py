"""Where a stream is written: a folder of numbered files or one file, and the truth beside it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from buckets.errors import BucketsError

Form = Literal["folder", "jsonl", "csv", "parquet"]
_FORM_BY_ENDING: dict[str, Form] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_MISTAKEN_ENDINGS = (".json", ".ndjson", ".txt", ".gz")
_OWN_FILE = re.compile(r"transactions-\d{5,}\.jsonl|\.transactions-\d{5,}\.jsonl\.part")


@dataclass(frozen=True)
class Destination:
    """Where a stream may be written: a folder or file, and the truth.

    The truth is next to a folder, not in it, where a reader of the stream would take it for events.
    """

    path: Path
    form: Form
    truth: Path

    def file(self, number: int) -> Path:
        """Return a numbered file of the folder."""
        return self.path / f"transactions-{number:05d}.jsonl"

    def stale_files(self) -> list[Path]:
        """Return the files of an earlier stream in the folder."""
        if self.form != "folder" or not self.path.exists():
            return []
        return sorted(entry for entry in self.path.iterdir() if _OWN_FILE.fullmatch(entry.name))


def destination(out: Path, malformed: bool, overwrite: bool) -> Destination:
    """Check a destination before anything is generated for it.

    Args:
        out: a path that ends with .jsonl, .csv or .parquet is one file, any other a folder.
        malformed: whether there are broken lines to write.
        overwrite: whether an earlier stream may be replaced.

    Raises:
        BucketsError: the destination is taken, or cannot hold the stream.
    """
    try:
        return _checked(out, malformed, overwrite)
    except OSError as error:
        message = f"output {out}: cannot be read: {error.strerror or error}; choose another path"
        raise BucketsError(message) from error


def _checked(out: Path, malformed: bool, overwrite: bool) -> Destination:
    path = out.resolve()
    ending = path.suffix.lower()
    form = _FORM_BY_ENDING.get(ending, "folder")
    if form == "folder" and ending in _MISTAKEN_ENDINGS:
        message = f"output {out}: {ending} is not written; use .jsonl, .csv or .parquet, or name a folder"
        raise BucketsError(message)
    if malformed and form in ("csv", "parquet"):
        message = (
            f"output {out}: malformed lines can stand in JSON lines only; write .jsonl or a folder, "
            "or set the malformed rate to 0"
        )
        raise BucketsError(message)
    if path.exists() and path.is_dir() != (form == "folder"):
        kinds = ("a folder", "a file") if path.is_dir() else ("a file", "a folder")
        message = f"output {out}: is {kinds[0]}, not {kinds[1]}; choose another path"
        raise BucketsError(message)
    stem = path.name if form == "folder" else path.stem
    target = Destination(path, form, path.with_name(f"{stem}.truth.jsonl") if stem else path)
    _refuse_taken(target, out, overwrite)
    return target


def _refuse_taken(target: Destination, out: Path, overwrite: bool) -> None:
    is_folder = target.path.is_dir()
    entries = list(target.path.iterdir()) if is_folder else []
    taken = bool(entries) if is_folder else target.path.exists() and target.path.stat().st_size > 0
    if not overwrite and (taken or target.truth.exists()):
        what = f"{out} is not empty" if taken else f"{target.truth} exists"
        message = f"output {out}: {what}; choose another path, or allow it to be replaced (--overwrite)"
        raise BucketsError(message)
    foreign = [entry.name for entry in entries if not _OWN_FILE.fullmatch(entry.name)]
    if foreign:
        message = (
            f"output {out}: holds {sorted(foreign)[0]!r}, which is no file of a generated stream; "
            "choose another folder, or move it away"
        )
        raise BucketsError(message)
