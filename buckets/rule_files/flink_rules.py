"""Reads files of the Flink demo's messages as rules; and the notes on who changed a rule file, and why.

Messages apply in order, as in a topic. Of the commands only DELETE_RULES_ALL affects which rules exist.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import msgspec

from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.files import write_whole
from buckets.rules.change import DECODER, checked_object
from buckets.rules.flink_message import (
    FlinkMessage,
    is_flink_object,
    is_plain_line,
    parse_flink_object,
    parse_plain_line,
    schema_fault,
)
from buckets.rules.rule import Rule

_OUR_FORM = re.compile(r"""\{\s*["']?rules["']?\s*:""")
_REST_OF_LINE = re.compile(r"[^\n]*")
_BLANK = re.compile(r"\s*")
_BLANK_OR_COMMA = re.compile(r"[\s,]*")


@dataclass
class FlinkRules:
    """The combined result of a file's messages."""

    rules: dict[str, Rule] = field(default_factory=dict)  # the rules that are there at its end, by name
    deleted: set[str] = field(default_factory=set)  # names of rules that it deletes and does not put again
    deletes_all: bool = False  # whether it deletes all rules that there are before it
    commands: list[tuple[int, str]] = field(default_factory=list)  # commands that change no rule, each with its line

    def take(self, message: FlinkMessage, line: int, rule: Rule | None) -> None:
        """Apply the next message, with its rule if it has one."""
        if message.control_type == "DELETE_RULES_ALL":
            self.rules, self.deleted, self.deletes_all = {}, set(), True
        elif message.control_type is not None:
            self.commands.append((line, message.control_type))
        elif rule is None:
            self.rules.pop(message.name, None)
            self.deleted.add(message.name)
        else:
            self.rules[message.name] = rule
            self.deleted.discard(message.name)


def holds_flink_rules(path: Path, text: str) -> bool:
    """Return whether a file holds the demo's messages, judged by its beginning unless its name is that of YAML."""
    if path.suffix in (".yaml", ".yml"):
        return False
    begin = text.lstrip("\ufeff \t\n")
    return begin.startswith("[") or (begin.startswith("{") and not _OUR_FORM.match(begin)) or is_plain_line(begin)


def read_flink_rules(path: Path, text: str, schema: EventSchema | None = None) -> FlinkRules:
    """Read the messages of a file; BucketsError names the line and the invalid field."""
    rules = FlinkRules()
    for line, read, written in _written(path, text):
        try:
            message = read(written)
            rule = message.rule() if message.rule_state in ("ACTIVE", "PAUSE") else None
            fault = None if rule is None or schema is None else schema_fault(rule, schema)
        except ValueError as error:
            fault = str(error)
        if fault is not None:
            raise _at(path, line, fault)
        rules.take(message, line, rule)
    return rules


def load_flink_rules(path: Path, text: str, schema: EventSchema | None = None) -> tuple[Rule, ...]:
    """Return the rules at the end of a file; BucketsError as for `read_flink_rules`, or if there is none."""
    rules = read_flink_rules(path, text, schema).rules
    if not rules:
        message = f"rule file {path}: its messages leave no rule; add one that is ACTIVE or PAUSE"
        raise BucketsError(message)
    return tuple(rules.values())


def _at(path: Path, line: int, fault: str) -> BucketsError:
    return BucketsError(f"rule file {path}:{line}: {fault}")


def _of_object(data: Any) -> FlinkMessage:
    written = checked_object(data, "a rule")
    if not is_flink_object(written):
        name = next(iter(written), None)
        shown = "has no field" if name is None else f"has the field {name!r}"
        message = f"{shown}, and is not a rule of the Flink demo; rules of buckets go into a YAML file, under `rules`"
        raise ValueError(message)
    return parse_flink_object(written)


_Read = Callable[[Any], FlinkMessage]


def _written(path: Path, text: str) -> Iterator[tuple[int, _Read, Any]]:
    """Yield each message with its line and its parser."""
    text = text.removeprefix("\ufeff")
    begin, separator = _end(_BLANK, text, 0), _BLANK
    line, is_list = text.count("\n", 0, begin) + 1, text[begin : begin + 1] == "["
    if is_list:
        _, end = _decoded(path, text, begin)
        rest = _end(_BLANK, text, end)
        if rest < len(text):
            raise _at(path, text.count("\n", 0, rest) + 1, "broken JSON: something follows the list of rules")
        text, separator = text[: end - 1], _BLANK_OR_COMMA
        end = _end(separator, text, begin + 1)
        line, begin = line + text.count("\n", begin, end), end
    while begin < len(text):
        if is_list or text[begin] == "{":
            written, end = _decoded(path, text, begin)
            yield line, _of_object, written
        else:
            end = _end(_REST_OF_LINE, text, begin)
            if not is_plain_line(text[begin:end]):
                raise _at(path, line, "is neither a JSON object nor a plain rule, as in 1,(active),(payeeId),…")
            yield line, parse_plain_line, text[begin:end]
        end = _end(separator, text, end)
        line, begin = line + text.count("\n", begin, end), end


def _decoded(path: Path, text: str, begin: int) -> tuple[Any, int]:
    try:
        return DECODER.raw_decode(text, begin)
    except JSONDecodeError as error:
        raise _at(path, error.lineno, f"broken JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise _at(path, text.count("\n", 0, begin) + 1, f"broken JSON: {error}") from None


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    match = pattern.match(text, begin)
    return begin if match is None else match.end()


@dataclass(frozen=True)
class ChangeNote:
    """The author of a rule's change, and the reason."""

    author: str
    reason: str


class _ChangeNotes(msgspec.Struct):
    """The notes on a rule file, valid as long as the file has this hash."""

    sha256: str
    rules: dict[str, ChangeNote]


def change_notes_path(file: Path) -> Path:
    """Return the path of the notes on a rule file."""
    return file.with_name(f".{file.name}.changes.json")


def read_change_notes(files: Iterable[Path]) -> dict[str, ChangeNote]:
    """Read the notes on rule files, by rule; a file that was edited by hand since has none."""
    notes: dict[str, ChangeNote] = {}
    for file in files:
        # The notes may be missing, or the file is not one of ours.
        with contextlib.suppress(OSError, ValueError, RecursionError):
            kept = msgspec.json.decode(change_notes_path(file).read_bytes(), type=_ChangeNotes)
            if kept.sha256 == _hash(file.read_bytes()):
                notes |= kept.rules
    return notes


def write_change_notes(file: Path, text: str, notes: Mapping[str, ChangeNote]) -> None:
    """Write the authors of changes and the reasons, before the rule file gets its new text."""
    kept = _ChangeNotes(_hash(text.encode()), {**read_change_notes([file]), **notes})
    write_whole(change_notes_path(file), msgspec.json.format(msgspec.json.encode(kept), indent=1).decode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
