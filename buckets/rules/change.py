"""A requested change of the rules of a running job, from a message, a file or a table.

    key                     value
    payer-24h               {"change": "put", "rule": {...}, "author": "ann", "reason": "too many"}, or the rule alone
    payer-24h               {"change": "delete", "rule_id": "payer-24h"}, or no value
    !state payer-24h        {"change": "state", "rule_id": "payer-24h", "state": "PAUSE"}
    !clear_state payer-24h  {"change": "clear_state", "rule_id": "payer-24h"}; the rule's group starts again
    !clear_all_state        {"change": "clear_all_state"}, likewise `delete_all` and `export`

A compacted topic keeps only the last message of each key. So a message under a rule's own key holds the whole rule or
deletes it, and any other message has a key that belongs to no rule (`key_of`). Messages of the Flink demo have no key.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NoReturn

from pydantic import Field, ValidationError, field_validator

from buckets.errors import BucketsError
from buckets.json_text import write_json
from buckets.printable import unseen_character
from buckets.rules.flink_message import (
    CONTROLS,
    FlinkMessage,
    check_new,
    is_flink_object,
    is_plain_line,
    parse_flink_object,
    parse_plain_line,
)
from buckets.rules.rule import Rule, State
from buckets.validation import DEEPEST, Checked, field_name, first_fault


def checked_object(data: Any, what: str) -> dict[str, Any]:
    """Return an object that `DECODER` has read; ValueError unless it can be written again and is not too deep."""
    try:
        write_json(data).encode()
    except UnicodeEncodeError as error:
        message = f"broken JSON: {error.object[error.start]!a} is half a character"
        raise ValueError(message) from None
    except (ValueError, RecursionError) as error:
        message = f"broken JSON: {error}"
        raise ValueError(message) from None
    if not isinstance(data, dict):
        message = f"{what} is a JSON object, not {type(data).__name__}"
        raise ValueError(message)
    if _is_deeper(data, DEEPEST):
        message = f"broken JSON: values are nested more than {DEEPEST} deep"
        raise ValueError(message)
    return data


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _no_number(text: str) -> NoReturn:
    message = f"{text} is not a number"
    raise ValueError(message)


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            message = f"key {key!r} is given twice"
            raise ValueError(message)
        found[key] = value
    return found


DECODER = json.JSONDecoder(parse_float=str, parse_constant=_no_number, object_pairs_hook=_keys_once)


Kind = Literal["put", "state", "delete", "clear_state", "clear_all_state", "delete_all", "export"]
_OF_ONE_RULE = ("state", "delete", "clear_state")
LONGEST_TEXT = 2000
LONGEST_MESSAGE = 500_000  # Characters of a message: the resulting change must fit into a message again
_END_OF_9999_MS = 253_402_300_799_999


def visible_text(text: str) -> str:
    """Return the text of an author or a reason; ValueError if it has an invisible character."""
    unseen = unseen_character(text, allowed="\n\t")
    if unseen is not None:
        message = f"holds {unseen}, which cannot be seen; leave it out"
        raise ValueError(message)
    return text


def short_text(text: str) -> str:
    """Return the text of an author or a reason; ValueError if it is too long or has an invisible character."""
    if len(text) > LONGEST_TEXT:
        message = f"{len(text):,} characters are too many, {LONGEST_TEXT:,} is the limit; make it shorter"
        raise ValueError(message)
    return visible_text(text)


def check_reason(text: str) -> None:
    """Check a required reason; BucketsError if it is empty, or not a text that can be stored."""
    if not text.strip():
        message = "reason: is empty; say why, for those who read the history"
        raise BucketsError(message)
    try:
        short_text(text)
    except ValueError as error:
        message = f"reason: {error}"
        raise BucketsError(message) from None


class RuleChange(Checked):
    """One change, as it is asked for.

    Attributes:
        change: what to do.
        rule: the whole rule, if it is put.
        rule_id: the rule, if it exists already.
        state: its new state.
        author: who asks for it.
        reason: why.
        time: when it was asked for, in ms since the epoch.
        origin: where it was read: topic, partition and offset; a file; a table and its version.
    """

    change: Kind
    rule: Rule | None = None
    rule_id: str | None = None
    state: State | None = None
    author: str = Field(default="", max_length=LONGEST_TEXT)
    reason: str = Field(default="", max_length=LONGEST_TEXT)
    time: int | None = Field(default=None, ge=0, le=_END_OF_9999_MS)
    origin: str = ""

    @field_validator("author", "reason")
    @classmethod
    def _can_be_shown(cls, value: str) -> str:
        return visible_text(value)

    def _faults(self) -> Iterator[str]:
        needed = {"rule": self.change == "put", "rule_id": self.change in _OF_ONE_RULE, "state": self.change == "state"}
        for name, wanted in needed.items():
            if wanted != (getattr(self, name) is not None):
                yield f"a change {self.change!r} {'needs the' if wanted else 'has no'} field {name!r}"
        if self.state == "DELETE":
            # Compaction would keep it beside the rule, and a later state would bring the rule back.
            yield "a change 'state' deletes no rule; ask for the change 'delete'"

    @property
    def subject(self) -> str | None:
        """The changed rule; None if all rules change."""
        return self.rule.rule_id if self.rule is not None else self.rule_id

    def to_json(self) -> str:
        """Return the change as the value of a message."""
        data = self.model_dump(by_alias=True, mode="json", exclude={"origin", "rule"}, exclude_none=True)
        if self.rule is not None:
            data["rule"] = self.rule.model_dump(by_alias=True, mode="json")
        return write_json(data)


def parse_change(key: str | None, value: str | None, origin: str, time_ms: int | None) -> RuleChange | None:
    """Return a message as a change; None if it asks for nothing, as one message of the Flink demo does.

    A message without a value deletes the rule that its key names. `time_ms`, when it was written, counts if the message
    itself has no time.

    Raises:
        ValueError: it is not a valid change; says why.
    """
    if value is None:
        if not key:
            message = "a message without a value deletes the rule that its key names, and there is no key"
            raise ValueError(message)
        return RuleChange(change="delete", rule_id=key, time=time_ms, origin=origin)
    data = _parse_value(value)
    if data is None:
        return None
    data.pop("place", None)  # a message does not decide where it was read
    if "origin" in data:
        message = "origin: unknown field"
        raise ValueError(message)
    try:
        change = RuleChange.model_validate({"time": time_ms} | data | {"origin": origin})
    except ValidationError as error:
        raise ValueError(first_fault(error, model=RuleChange)[1]) from None
    fault = None if change.rule is None or change.rule.state == "DELETE" else check_new(change.rule)
    if fault is not None:
        message = f"rule.{field_name(fault[0])}: {fault[1]}"
        raise ValueError(message)
    _check_key(key, change)
    return change


def _parse_value(value: str) -> dict[str, Any] | None:
    """Return the fields of a change in either form of message; None if it asks for nothing."""
    if len(value) > LONGEST_MESSAGE:
        message = f"a message has at most {LONGEST_MESSAGE:,} characters, not {len(value):,}"
        raise ValueError(message)
    if is_plain_line(value):
        return asked_by(parse_plain_line(value))
    try:
        data = DECODER.decode(value)
    except (ValueError, RecursionError) as error:
        message = f"broken JSON: {error}"
        raise ValueError(message) from None
    data = checked_object(data, "a change")
    if is_flink_object(data):
        return asked_by(parse_flink_object(data))
    return data if "change" in data else {"change": "put", "rule": data}


def asked_by(message: FlinkMessage) -> dict[str, Any] | None:
    """Return the fields of a change in a message of the Flink demo; None if it asks for nothing.

    ValueError names the demo's field if its rule is invalid.
    """
    if message.control_type is not None:
        kind = CONTROLS[message.control_type]
        return None if kind is None else {"change": kind}
    if message.rule_state == "DELETE":
        return {"change": "delete", "rule_id": message.name}
    return {"change": "put", "rule": message.rule()}


def key_of(change: RuleChange) -> str:
    """Return the message key of a change, chosen so that compaction drops only replaced messages."""
    if change.change in ("put", "delete"):
        return change.subject or ""
    return f"!{change.change} {change.subject}" if change.subject is not None else f"!{change.change}"


def _check_key(key: str | None, change: RuleChange) -> None:
    """Refuse a key under which compaction would drop a message that this one does not replace."""
    if not key or change.subject is None or key == key_of(change):
        return
    if change.change in ("put", "delete"):
        message = f"the key {key!r} is not the rule_id {change.subject!r}: a compacted topic would mix the rules up"
        raise ValueError(message)
    message = (
        f"the key {key!r} is that of a rule, which a compacted topic would forget for this message: write the key "
        f"{key_of(change)!r}"
    )
    if change.change == "state":
        message += ", or put the whole rule with its new state"
    raise ValueError(message)


def changes_between(before: Iterable[Rule], after: Iterable[Rule], **said: Any) -> list[RuleChange]:
    """Return the changes that turn one list of rules into another; a rule in the state DELETE counts as gone.

    `said` is `author`, `reason`, `time`, `origin` of all these changes.
    """
    old = {rule.rule_id: rule for rule in before}
    new = {rule.rule_id: rule for rule in after if rule.state != "DELETE"}
    gone = [RuleChange(change="delete", rule_id=rule_id, **said) for rule_id in old if rule_id not in new]
    put = (rule for rule_id, rule in new.items() if needs_put(old.get(rule_id), rule))
    return gone + [RuleChange(change="put", rule=rule, **said) for rule in put]


def needs_put(there: Rule | None, rule: Rule) -> bool:
    """Return whether putting a rule over another has an effect: a new definition, or a higher version."""
    if there is None:
        return True
    same = there.model_copy(update={"version": rule.version}) == rule
    return not same or rule.version > there.version
