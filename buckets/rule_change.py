"""A change of the rules while a job runs: as it is asked for, in a message, a file or a table.

A message is a JSON object with a `change`, or a bare rule, which is put; a message without a value deletes the rule
that its key names, as a compacted topic does.

    key            value
    payer-24h      {"change": "put", "rule": {...}, "author": "ann", "reason": "too many alerts"}
    payer-24h      {"change": "delete", "rule_id": "payer-24h"}
    !state payer-24h        {"change": "state", "rule_id": "payer-24h", "state": "PAUSE"}
    !clear_state payer-24h  {"change": "clear_state", "rule_id": "payer-24h"}    the rule's group begins anew
    !clear_all_state        {"change": "clear_all_state"}, and so `delete_all` and `export`

A compacted topic keeps the last message of a key. What is under a rule's own key must therefore say all of the rule, or
that it is gone; any other message has a key that is no rule's (`key_of`), or compaction would put it in the place of
the rule. A `delete` stays in the topic with its author and reason; a message without a value after it frees the topic
of it, and changes nothing else, since what is not there is deleted already.
"""

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from buckets.printable import unseen_character
from buckets.rule import Rule, State, check_new
from buckets.yaml_dialect import DEEPEST
from buckets.yaml_file import field_name, reason

Kind = Literal["put", "state", "delete", "clear_state", "clear_all_state", "delete_all", "export"]
_OF_ONE_RULE = ("state", "delete", "clear_state")
LONGEST_TEXT = 2000
LONGEST_MESSAGE = 500_000
"""Characters of a message that is read: what is made of it must fit into a message again."""
_END_OF_9999_MS = 253_402_300_799_999


def shown_words(text: str) -> str:
    """An author or a reason, if a terminal can show it.

    Raises:
        ValueError: it holds something that cannot be seen.
    """
    unseen = unseen_character(text, allowed="\n\t")
    if unseen is not None:
        message = f"holds {unseen}, which cannot be seen; leave it out"
        raise ValueError(message)
    return text


class RuleChange(BaseModel):
    """One change, as asked for.

    Attributes:
        change: what is to be done.
        rule: the whole rule, where it is put.
        rule_id: the rule, where it is there already.
        state: its new state.
        author: who asks for it.
        reason: why.
        time: when it was asked for, in ms since the epoch.
        place: where it was read: topic, partition and offset; a file; a table and its version.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    change: Kind
    rule: Rule | None = None
    rule_id: str | None = None
    state: State | None = None
    author: str = Field(default="", max_length=LONGEST_TEXT)
    reason: str = Field(default="", max_length=LONGEST_TEXT)
    time: int | None = Field(default=None, ge=0, le=_END_OF_9999_MS)
    place: str = ""

    @field_validator("author", "reason")
    @classmethod
    def _can_be_shown(cls, value: str) -> str:
        return shown_words(value)

    @model_validator(mode="after")
    def _says_what_is_needed(self) -> "RuleChange":
        needed = {"rule": self.change == "put", "rule_id": self.change in _OF_ONE_RULE, "state": self.change == "state"}
        for name, wanted in needed.items():
            if wanted and getattr(self, name) is None:
                message = f"a change {self.change!r} needs the field {name!r}"
                raise ValueError(message)
            if not wanted and getattr(self, name) is not None:
                message = f"a change {self.change!r} has no field {name!r}"
                raise ValueError(message)
        if self.state == "DELETE":
            # A compacted topic would keep it beside the rule, and a later state would bring the rule back.
            message = "a change 'state' deletes no rule; ask for the change 'delete'"
            raise ValueError(message)
        return self

    @property
    def subject(self) -> str | None:
        """The rule that is to change; None where all are meant."""
        return self.rule.rule_id if self.rule is not None else self.rule_id

    def to_json(self) -> str:
        """The change as the value of a message."""
        data = self.model_dump(by_alias=True, mode="json", exclude={"place", "rule"}, exclude_none=True)
        if self.rule is not None:
            data["rule"] = self.rule.model_dump(by_alias=True, mode="json")
        return json.dumps(data, ensure_ascii=False)


def parse_change(key: str | None, value: str | None, place: str, time_ms: int | None) -> RuleChange:
    """A message as a change.

    Args:
        key: the message's key.
        value: its value; None deletes the rule that the key names.
        place: where it was read.
        time_ms: when it was written, which counts where the message does not say.

    Raises:
        ValueError: it is none; says why.
    """
    if value is None:
        if not key:
            message = "a message without a value deletes the rule that its key names, and there is no key"
            raise ValueError(message)
        return RuleChange(change="delete", rule_id=key, time=time_ms, place=place)
    data = _parse_object(value)
    if "change" not in data:
        data = {"change": "put", "rule": data}
    try:
        change = RuleChange.model_validate({"time": time_ms} | data | {"place": place})
    except ValidationError as error:
        first, *more = error.errors()
        named = field_name(tuple(step for step in first["loc"] if step != "function-before"))
        also = f" (and {len(more)} more)" if more else ""
        message = f"{named}: {reason(first)}{also}" if named else f"{reason(first)}{also}"
        raise ValueError(message) from None
    fault = None if change.rule is None or change.rule.state == "DELETE" else check_new(change.rule)
    if fault is not None:
        message = f"rule.{field_name(fault[0])}: {fault[1]}"
        raise ValueError(message)
    _check_key(key, change)
    return change


def _parse_object(value: str) -> dict[str, Any]:
    """A JSON object; numbers are the text that was written, as in rule files."""
    if len(value) > LONGEST_MESSAGE:
        message = f"a message has at most {LONGEST_MESSAGE:,} characters, not {len(value):,}"
        raise ValueError(message)
    try:
        data = json.loads(value, parse_float=str, parse_constant=_no_number, object_pairs_hook=_keys_once)
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        message = f"broken JSON: {error.object[error.start]!a} is half a character"
        raise ValueError(message) from None
    except (ValueError, RecursionError) as error:
        message = f"broken JSON: {error}"
        raise ValueError(message) from None
    if not isinstance(data, dict):
        message = f"a change is a JSON object, not {type(data).__name__}"
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


def _no_number(text: str) -> None:
    message = f"{text} is no number"
    raise ValueError(message)


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            message = f"key {key!r} is given twice"
            raise ValueError(message)
        found[key] = value
    return found


def key_of(change: RuleChange) -> str:
    """The key of a change as a message, such that a compacted topic keeps what must be kept."""
    if change.change in ("put", "delete"):
        return change.subject or ""
    return f"!{change.change} {change.subject}" if change.subject is not None else f"!{change.change}"


def _check_key(key: str | None, change: RuleChange) -> None:
    """See that compaction will not put a message in the place of one that it does not replace."""
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
    """The changes that make one list of rules of another; a rule that is DELETE counts as gone.

    Args:
        before: the rules in force.
        after: the rules as a file or a table has them.
        said: `author`, `reason`, `time`, `place` of all these changes.
    """
    old = {rule.rule_id: rule for rule in before}
    new = {rule.rule_id: rule for rule in after if rule.state != "DELETE"}
    gone = [RuleChange(change="delete", rule_id=rule_id, **said) for rule_id in old if rule_id not in new]
    put = [RuleChange(change="put", rule=rule, **said) for rule_id, rule in new.items() if needs_put(old, rule)]
    return gone + put


def needs_put(rules: dict[str, Rule], rule: Rule) -> bool:
    """Whether putting a rule changes anything: another definition, or a higher version of the same."""
    there = rules.get(rule.rule_id)
    if there is None:
        return True
    same = there.model_copy(update={"version": rule.version}) == rule
    return not same or rule.version > there.version
