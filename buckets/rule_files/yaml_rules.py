"""Rule files: read, checked against the event schema, each fault named by file, line and field.

A rule file is YAML (`rules.yaml`); a file of the Flink demo's messages may stand wherever one is read (`flink_rules`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.rule_files.flink_rules import holds_flink_rules, load_flink_rules, read_flink_rules
from buckets.rules.change import RuleChange
from buckets.rules.rule import Rule, check_against_schema, check_new
from buckets.validation import Location, field_name
from buckets.yaml_file import invalid, line_of, parse_yaml, read_text

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")
"""How the rule files of a folder end; the JSON schema of rule files, for editors, may lie beside them."""
_JSON_SCHEMA = ".schema.json"


def rule_files(path: Path) -> list[Path]:
    """The files of a rule file or of a folder of them, in the order of their names.

    Raises:
        BucketsError: the folder cannot be read.
    """
    try:
        if not path.is_dir():
            return [path]
        return sorted(each for each in path.iterdir() if _is_rule_file(each.name))
    except OSError as error:
        message = f"rules {path}: cannot be read ({error.strerror}); see that it is there and who may read it"
        raise BucketsError(message) from None


def _is_rule_file(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".") and not name.endswith(_JSON_SCHEMA)


def load_rule_files(path: Path, schema: EventSchema | None = None) -> tuple[Rule, ...]:
    """Read a rule file, or all files of a folder, as `load_rules` does.

    Raises:
        BucketsError: as `load_rules`; or a rule is in two files, or the folder holds no file or cannot be read.
    """
    found: dict[str, tuple[Rule, Path]] = {}
    files = rule_files(path)
    if not files:
        message = f"rules {path}: the folder holds no .yaml or .json file; put one there"
        raise BucketsError(message)
    for file in files:
        for rule in load_rules(file, schema):
            if rule.rule_id in found:
                other = found[rule.rule_id][1]
                message = f"rule file {file}: rule_id {rule.rule_id!r} is already used in {other}"
                raise BucketsError(message)
            found[rule.rule_id] = (rule, file)
    return tuple(rule for rule, _ in found.values())


def load_rules(path: Path, schema: EventSchema | None = None) -> tuple[Rule, ...]:
    """Read the rules of a file, in its order.

    Args:
        path: a YAML file with a list `rules`, or a file of the Flink demo's messages.
        schema: what the rules' fields are checked against, if given.

    Raises:
        BucketsError: the file cannot be read, or a rule is not valid; says the line and the field.
    """
    what = "rule file"
    text = read_text(path, what)
    if holds_flink_rules(path, text):
        return load_flink_rules(path, text, schema)
    data, root = parse_yaml(text, path, what)
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list):
        message = f"{what} {path}: must be a mapping with a list `rules`"
        raise BucketsError(message)
    unknown = next((key for key in data if key != "rules"), None)
    if unknown is not None:
        at = f"{path}:{line_of(root, (unknown,))}"
        message = f"{what} {at}: {field_name((unknown,))}: unknown field; only `rules` may stand here"
        raise BucketsError(message)
    rules: list[Rule] = []
    lines: dict[str, int] = {}
    for index, written in enumerate(data["rules"]):
        location: Location = ("rules", index)
        try:
            rule = Rule.model_validate(written)
        except ValidationError as error:
            raise invalid(error, path, root, what, location) from None
        line = line_of(root, location)
        if rule.rule_id in lines:
            message = f"{what} {path}:{line}: rule_id {rule.rule_id!r} is already used on line {lines[rule.rule_id]}"
            raise BucketsError(message)
        lines[rule.rule_id] = line
        fault = None if rule.state == "DELETE" else check_new(rule)
        fault = check_against_schema(rule, schema) if fault is None and schema else fault
        if fault is not None:
            location = (*location, *fault[0])
            message = f"{what} {path}:{line_of(root, location)}: {field_name(location)}: {fault[1]}"
            raise BucketsError(message)
        rules.append(rule)
    if not rules:
        message = f"{what} {path}: holds no rule; add at least one under `rules`"
        raise BucketsError(message)
    return tuple(rules)


def load_changes(path: Path, schema: EventSchema, kept: Iterable[Rule], **said: Any) -> list[RuleChange]:
    """The changes that applying a file asks for; rules that it does not name stay as they are.

    Args:
        path: the file.
        schema: the event schema.
        kept: the rules that are there before.
        said: `author` and `reason` of all changes.

    Raises:
        BucketsError: as `load_rules`, but that a file of the demo's messages may delete rules alone.
    """
    text = read_text(path, "rule file")
    if not holds_flink_rules(path, text):
        return [RuleChange(change="put", rule=rule, **said) for rule in load_rules(path, schema)]
    found = read_flink_rules(path, text, schema)
    there = [rule.rule_id for rule in kept if rule.rule_id not in found.rules]
    gone = [name for name in there if found.deletes_all or name in found.deleted]
    deleted = [RuleChange(change="delete", rule_id=name, **said) for name in gone]
    return deleted + [RuleChange(change="put", rule=rule, **said) for rule in found.rules.values()]
