"""Reads rule files and checks them against the event schema; each fault names file, line and field.

A rule file is YAML (`rules.yaml`); a file of the Flink demo's messages is accepted everywhere too (`flink_rules`).
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from yaml.nodes import MappingNode, Node

from buckets.errors import BucketsError, first_of
from buckets.events.schema import EventSchema
from buckets.printable import short_line
from buckets.rule_files.flink_rules import holds_flink_rules, load_flink_rules, read_flink_rules
from buckets.rule_files.rule_tests import RuleTest
from buckets.rules.change import RuleChange
from buckets.rules.flink_message import check_against_schema, check_new
from buckets.rules.rule import Rule
from buckets.stores.location import found_location, location
from buckets.stores.store_path import StoreError
from buckets.validation import Location, field_name
from buckets.yaml_file import invalid, line_of, node_at, parse_yaml, read_text

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")
"""Endings of the rule files in a folder; their JSON schema, for editors, may be beside them."""
_JSON_SCHEMA = ".schema.json"
_WHAT = "rule file"
_KEYS = ("rules", "tests")  # The keys at the top of a rule file


class RuleFaults(BucketsError):
    """The faults of the rules in a file; its text is that of the first rule."""

    def __init__(self, of_rules: Sequence[list[BucketsError]]) -> None:
        super().__init__(first_of(of_rules[0]).message)
        self.faults = [fault for faults in of_rules for fault in faults]


@dataclass(frozen=True)
class RuleFile:
    """The contents of a rule file."""

    path: Path  # the file
    rules: tuple[Rule, ...]  # its rules, in its order
    tests: tuple[RuleTest, ...]  # the tests beside them
    root: Node | None  # the nodes of the file, which know the lines

    def line(self, location: Location) -> int:
        """Return the line, from 1, of a field."""
        return line_of(self.root, location)

    def rule_line(self, rule_id: str, path: Location = ()) -> int:
        """Return the line, from 1, of a field of a rule; if it is not written, of the nearest one around it."""
        return self.line(("rules", self._places[rule_id], *path))

    def written(self, rule_id: str) -> frozenset[str]:
        """Return the written fields of a rule; empty in a file of the Flink demo's messages."""
        node = node_at(self.root, ("rules", self._places[rule_id]))
        return frozenset(key.value for key, _ in node.value) if isinstance(node, MappingNode) else frozenset()

    @cached_property
    def _places(self) -> Mapping[str, int]:
        """The position of each rule in the file; all rules are valid, so positions match those parsed."""
        return {rule.rule_id: place for place, rule in enumerate(self.rules)}

    def fault(self, location: Location, reason: str) -> BucketsError:
        """Return an error that names the file, line, field and reason."""
        return _fault(self.path, self.root, location, reason)


def _fault(path: Path, root: Node | None, location: Location, reason: str) -> BucketsError:
    return BucketsError(f"{_WHAT} {path}:{line_of(root, location)}: {field_name(location)}: {reason}")


def rule_files(path: Path) -> list[Path]:
    """Return the rule files of a file or folder, by name; BucketsError if the folder cannot be read."""
    try:
        path = location(str(path))
        if not path.is_dir():
            return [path]
        names = (file for file in path.iterdir() if file.name.endswith(SUFFIXES))
        return sorted(file for file in names if not file.name.startswith(".") and not file.name.endswith(_JSON_SCHEMA))
    except StoreError:  # it names the remedy
        raise
    except OSError as error:
        message = f"rules {path}: cannot be read ({error.strerror}); see that it is there and who may read it"
        raise BucketsError(message) from None


def unread_folders(path: Path) -> list[str]:
    """Return subfolders of a folder of rules that hold rule files, since these are not read."""
    if not path.is_dir():
        return []
    inner = (each for each in sorted(path.iterdir()) if each.is_dir() and not each.name.startswith("."))
    return [each.name for each in inner if rule_files(each)]


def load_rule_files(path: Path, schema: EventSchema | None = None) -> tuple[Rule, ...]:
    """Read a rule file, or all files of a folder, as `load_rules` does; BucketsError as `read_rule_files`."""
    return tuple(rule for file in read_rule_files(path, schema) for rule in file.rules)


def read_rule_files(path: Path, schema: EventSchema | None = None) -> tuple[RuleFile, ...]:
    """Read a rule file, or all files of a folder, with their tests.

    BucketsError as `load_rules`; or if a rule is in two files, or the folder holds no file or cannot be read.
    """
    files = rule_files(path)
    if not files:
        message = f"rules {path}: the folder holds no .yaml or .json file; put one there"
        raise BucketsError(message)
    homes: dict[str, Path] = {}
    read = []
    for file in files:
        read.append(load_rule_file(file, schema))
        for rule in read[-1].rules:
            if rule.rule_id in homes:
                other = homes[rule.rule_id]
                message = f"rule file {file}: rule_id {rule.rule_id!r} is already used in {other}"
                raise BucketsError(message)
            homes[rule.rule_id] = file
    return tuple(read)


def load_rules(path: Path, schema: EventSchema | None = None) -> tuple[Rule, ...]:
    """Read the rules of a YAML file or a file of the Flink demo's messages, in its order.

    With an event schema the rules' fields are checked against it; the tests beside them are checked as well.

    Raises:
        BucketsError: the file cannot be read, or a rule or a test is not valid; says the line and the field.
    """
    return load_rule_file(path, schema).rules


def load_rule_file(path: Path, schema: EventSchema | None = None) -> RuleFile:
    """Read a rule file with its tests; see `load_rules`. A file of the Flink demo's messages has none."""
    path = found_location(str(path))
    return read_rule_file(path, read_text(path, _WHAT), schema)


def read_rule_file(path: Path, text: str, schema: EventSchema | None = None) -> RuleFile:
    """Read the text of a rule file; errors name `path` as its location."""
    if holds_flink_rules(path, text):
        return RuleFile(path, load_flink_rules(path, text, schema), (), None)
    data, root = parse_yaml(text, path, _WHAT)
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list):
        message = f"{_WHAT} {path}: must be a mapping with a list `rules`"
        raise BucketsError(message)
    unknown = next((key for key in data if key not in _KEYS), None)
    if unknown is not None:
        raise _fault(path, root, (unknown,), "unknown field; only `rules` and `tests` may stand here")
    rules = _rules(path, data["rules"], root, schema)
    if not rules:
        message = f"{_WHAT} {path}: holds no rule; add at least one under `rules`"
        raise BucketsError(message)
    return RuleFile(path, tuple(rules), tuple(_tests(path, data.get("tests", []), root, rules)), root)


def read_rules(path: Path, schema: EventSchema | None = None) -> tuple[tuple[Rule, ...], list[BucketsError]]:
    """Read the rules of a file or folder; return them and the faults: of each rule all, of tests the first."""
    try:
        return load_rule_files(path, schema), []
    except BucketsError as error:
        first = error
    faults: list[BucketsError] = []  # of each file separately
    with contextlib.suppress(BucketsError):
        for file in rule_files(path):
            try:
                load_rule_file(file, schema)
            except RuleFaults as error:
                faults += error.faults
            except BucketsError as error:
                faults.append(error)
    return (), faults or [first]


def _rules(path: Path, written: list[Any], root: Node | None, schema: EventSchema | None) -> list[Rule]:
    """Return the checked rules of a file; raises `RuleFaults` with all faults of invalid ones."""
    rules, wrong, lines = list[Rule](), list[list[BucketsError]](), dict[str, int]()
    for index, fields in enumerate(written):
        location: Location = ("rules", index)
        try:
            rule = Rule.model_validate(fields)
        except ValidationError as error:
            wrong.append(invalid(error, path, root, _WHAT, Rule, location))
            continue
        line = line_of(root, location)
        if rule.rule_id in lines:
            message = f"{_WHAT} {path}:{line}: rule_id {rule.rule_id!r} is already used on line {lines[rule.rule_id]}"
            wrong.append([BucketsError(message)])
            continue
        lines[rule.rule_id] = line
        fault = None if rule.state == "DELETE" else check_new(rule)
        fault = check_against_schema(rule, schema) if fault is None and schema else fault
        if fault is None:
            rules.append(rule)
        else:
            wrong.append([_fault(path, root, (*location, *fault[0]), fault[1])])
    if wrong:
        raise RuleFaults(wrong)
    return rules


def _tests(path: Path, written: Any, root: Node | None, rules: Sequence[Rule]) -> Iterator[RuleTest]:
    """Yield the tests of a file, which may only name rules of the same file; see `load_rules`."""
    if not isinstance(written, list):
        raise _fault(path, root, ("tests",), "must be a list")
    known = {rule.rule_id for rule in rules}
    lines: dict[str, int] = {}
    for index, fields in enumerate(written):
        location: Location = ("tests", index)
        try:
            test = RuleTest.model_validate(fields)
        except ValidationError as error:
            raise first_of(invalid(error, path, root, _WHAT, RuleTest, location)) from None
        line = line_of(root, location)
        if test.name in lines:
            message = f"{_WHAT} {path}:{line}: test {test.name!r} has the name of the one on line {lines[test.name]}"
            raise BucketsError(message)
        lines[test.name] = line
        for named, rule_id in test.named_rules():
            if rule_id not in known:
                reason = f"no rule {short_line(repr(rule_id))} is in this file; name one that is"
                raise _fault(path, root, (*location, *named), reason)
        yield test


def load_changes(path: Path, schema: EventSchema, kept: Iterable[Rule], **said: Any) -> list[RuleChange]:
    """Return the changes that apply a file; rules that it does not name are unchanged.

    `kept` are the existing rules, `said` is author and reason. BucketsError as for `load_rules`, except that a file of
    the demo's messages may consist of deletions only.
    """
    text = read_text(path, _WHAT)
    if not holds_flink_rules(path, text):
        return [RuleChange(change="put", rule=rule, **said) for rule in load_rules(path, schema)]
    read = read_flink_rules(path, text, schema)
    there = [rule.rule_id for rule in kept if rule.rule_id not in read.rules]
    gone = [name for name in there if read.deletes_all or name in read.deleted]
    deleted = [RuleChange(change="delete", rule_id=name, **said) for name in gone]
    return deleted + [RuleChange(change="put", rule=rule, **said) for rule in read.rules.values()]
