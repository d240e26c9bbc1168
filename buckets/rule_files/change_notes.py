"""Notes on the rules of a file: who last changed each of them with a command, and why.

The notes are kept in a hidden file beside it, `.rules.yaml.changes.json`, with a hash of the rule file. After
a change by hand the hash no longer matches, and the notes are ignored.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buckets.files import write_whole


@dataclass(frozen=True)
class ChangeNote:
    """Who changed a rule, and why."""

    author: str
    reason: str


def change_notes_path(file: Path) -> Path:
    """Return where the notes on a rule file are kept."""
    return file.with_name(f".{file.name}.changes.json")


def read_change_notes(files: Iterable[Path]) -> dict[str, ChangeNote]:
    """Read the notes on rule files, by rule; a file that has been changed by hand since has none."""
    notes: dict[str, ChangeNote] = {}
    for file in files:
        try:
            kept = json.loads(change_notes_path(file).read_text(encoding="utf-8"))
            if kept["sha256"] == _hash(file.read_bytes()):
                notes |= {rule_id: _note(**note) for rule_id, note in kept["rules"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # there are no notes, or the file is not one of ours
    return notes


def _note(author: Any, reason: Any) -> ChangeNote:
    if not isinstance(author, str) or not isinstance(reason, str):
        message = "author and reason are texts"
        raise TypeError(message)
    return ChangeNote(author, reason)


def write_change_notes(file: Path, text: str, notes: Mapping[str, ChangeNote]) -> None:
    """Write who changes rules, and why, before the rule file gets its new text.

    Args:
        file: the rule file.
        text: what it will hold.
        notes: by rule; notes on other rules stay.
    """
    rules = {rule_id: asdict(note) for rule_id, note in {**read_change_notes([file]), **notes}.items()}
    kept = {"sha256": _hash(text.encode()), "rules": rules}
    write_whole(change_notes_path(file), json.dumps(kept, ensure_ascii=False, indent=1))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
