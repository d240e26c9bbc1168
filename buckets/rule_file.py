"""The rule file (`rules.yaml`): read, checked against the event schema, each fault named by file, line and field."""

from pathlib import Path

from pydantic import ValidationError

from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.rule import Rule, check_against_schema
from buckets.yaml_file import Location, field_name, invalid, line_of, parse_yaml, read_text


def load_rules(path: Path, schema: EventSchema | None = None) -> tuple[Rule, ...]:
    """Read the rules of a file, in its order.

    Args:
        path: a YAML file with a list `rules`.
        schema: what the rules' fields are checked against, where given.

    Raises:
        BucketsError: the file cannot be read, or a rule is not valid; says the line and the field.
    """
    what = "rule file"
    data, root = parse_yaml(read_text(path, what), path, what)
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list):
        message = f"{what} {path}: must be a mapping with a list `rules`"
        raise BucketsError(message)
    unknown = next((key for key in data if key != "rules"), None)
    if unknown is not None:
        message = f"{what} {path}:{line_of(root, (unknown,))}: {unknown}: unknown field; only `rules` may stand here"
        raise BucketsError(message)
    rules: list[Rule] = []
    lines: dict[str, int] = {}
    for index, written in enumerate(data["rules"]):
        place: Location = ("rules", index)
        try:
            rule = Rule.model_validate(written)
        except ValidationError as error:
            raise invalid(error, path, root, what, place) from None
        line = line_of(root, place)
        if rule.rule_id in lines:
            message = f"{what} {path}:{line}: rule_id {rule.rule_id!r} is already used on line {lines[rule.rule_id]}"
            raise BucketsError(message)
        lines[rule.rule_id] = line
        fault = check_against_schema(rule, schema) if schema else None
        if fault is not None:
            location: Location = (*place, *fault[0])
            message = f"{what} {path}:{line_of(root, location)}: {field_name(location)}: {fault[1]}"
            raise BucketsError(message)
        rules.append(rule)
    if not rules:
        message = f"{what} {path}: holds no rule; add at least one under `rules`"
        raise BucketsError(message)
    return tuple(rules)
