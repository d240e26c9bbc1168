"""Who changed rules of a file with a command, and why.

They stand in a hidden file beside it, `.rules.yaml.changes.json`, with a hash of the rule file: after a change by hand
they are no longer true, and count no more.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buckets.ledger import write_whole


@dataclass(frozen=True)
class Words:
    """Who changed a rule, and why."""

    author: str
    reason: str


def words_path(file: Path) -> Path:
    """Where the words about a rule file are."""
    return file.with_name(f".{file.name}.changes.json")


def words_about(files: Iterable[Path]) -> dict[str, Words]:
    """Who changed rules of files last, by rule, where it was said and the file has not been changed by hand since."""
    found: dict[str, Words] = {}
    for file in files:
        try:
            kept = json.loads(words_path(file).read_text(encoding="utf-8"))
            if kept["sha256"] == _hash(file.read_bytes()):
                found |= {rule_id: _words(**words) for rule_id, words in kept["rules"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # nothing was said, or somebody else wrote it
    return found


def _words(author: Any, reason: Any) -> Words:
    if not isinstance(author, str) or not isinstance(reason, str):
        message = "words are texts"
        raise TypeError(message)
    return Words(author, reason)


def keep_words(file: Path, text: str, words: Mapping[str, Words]) -> None:
    """Say who changes rules, before the file gets its new text.

    Args:
        file: the rule file.
        text: what it will hold.
        words: by rule; what was said of other rules stays.
    """
    rules = {rule_id: asdict(each) for rule_id, each in {**words_about([file]), **words}.items()}
    kept = {"sha256": _hash(text.encode()), "rules": rules}
    write_whole(words_path(file), json.dumps(kept, ensure_ascii=False, indent=1))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
