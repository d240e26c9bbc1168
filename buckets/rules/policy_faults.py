"""What is wrong with the tags of a rule and the keys of its snoozes, beyond what their types say."""

import re
from collections.abc import Mapping, Sequence

from buckets.events.schema import AttributeType, EventSchema
from buckets.printable import short_line

LONGEST_TAG = 200
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def tag_fault(tag: str) -> str | None:
    """What is wrong with a tag, if anything."""
    if not tag or tag.strip() != tag:
        return f"{short_line(repr(tag))} is empty, or begins or ends with a blank; write a word, as in cards"
    if len(tag) > LONGEST_TAG:
        return f"a tag has at most {LONGEST_TAG} characters, not {len(tag)}; write a word, as in cards"
    return None


def key_fault(key: Mapping[str, str | int | bool], group_by: Sequence[str], schema: EventSchema) -> str | None:
    """What keeps values from being a key of a rule, if anything."""
    if set(key) != set(group_by):
        wanted = ", ".join(group_by) or "no field, so leave the key out"
        return f"names {short_line(', '.join(key))}, and the rule groups by {wanted}; name exactly these"
    for field, value in key.items():
        kind = schema.attributes.get(field)
        if kind is not None and not _is_of_kind(value, kind):
            return f"{field}: {short_line(repr(value))} is no {_KINDS[kind]}; write {_EXAMPLES[kind]}"
    return None


_KINDS: dict[AttributeType, str] = {"string": "text", "long": "whole number of 64 bits", "boolean": "boolean"}
_EXAMPLES: dict[AttributeType, str] = {"string": '"p-17"', "long": "17", "boolean": "true or false"}


def _is_of_kind(value: str | int | bool, kind: AttributeType) -> bool:
    """Whether a value is of a kind; in YAML numbers and booleans are text."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    is_whole = not isinstance(value, bool) and _WHOLE.fullmatch(str(value)) is not None
    return is_whole and -(2**63) <= int(value) < 2**63
