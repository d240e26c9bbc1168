"""Rules as the text of a rule file, and edits of such a text that keep comments, tests and everything else.

An edit is made in place, at the positions given by the YAML parser:

    state    the word after `state:`, or a new line `state: PAUSE` below the `rule_id`
    put      the values that differ, and new lines or none for features and policies; or else the rule's own lines
    delete   the rule's own lines are removed; the only rule of a file, or one that a test names, gets `state: DELETE`

Afterwards the text is parsed again, and must hold exactly the wanted rules: unusual YAML, for example with anchors, is
refused rather than damaged.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from buckets.errors import BucketsError
from buckets.files import held, write_whole
from buckets.rule_files.flink_rules import ChangeNote, holds_flink_rules, write_change_notes
from buckets.rule_files.yaml_rules import load_rules, rule_files
from buckets.rules.rule import POLICY_FIELDS, Rule, State
from buckets.stores.store_path import StorePath
from buckets.yaml_dialect import InBraces, compose_yaml, write_yaml
from buckets.yaml_file import parse_yaml

_OPTIONAL = frozenset({"state", *POLICY_FIELDS})
"""Fields that can be added or removed on separate lines, while the other lines of a rule stay."""
_WRITTEN_DEFAULTS = {"state": "ACTIVE", "rollout": "100%"}
"""The text for a field that returns to its default, so that its comment stays."""
_ATTEMPTS = 10  # How often a change in an object store is retried after a concurrent change
_Edit = tuple[int, int, str]  # Start and end of a replaced part of a text, and the replacement


def written_rule(rule: Rule) -> dict[str, Any]:
    """Return a rule in its written form, without fields that have their defaults."""
    data = rule.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    if isinstance(data.get("where"), dict):
        data["where"] = {field: _shortest(test) for field, test in data["where"].items()}
    if rule.is_short and rule.measure is None:
        data["aggregate"] = {"function": "count"}
    features = data.get("features", {})
    for name, feature in features.items():
        if isinstance(feature.get("where"), dict):
            feature["where"] = {field: _shortest(test) for field, test in feature["where"].items()}
        if set(feature["window"]) == {"length"}:
            feature["window"] = feature["window"]["length"]
        features[name] = InBraces(feature)
    if "snoozes" in data:
        data["snoozes"] = [InBraces(snooze) for snooze in data["snoozes"]]
    return {name: data[name] for name in Rule.model_fields if name in data}


def _shortest(test: dict[str, Any]) -> Any:
    """Return `{"=": x}` as `x` and `{"in": [x, y]}` as `[x, y]`; other tests unchanged."""
    return test[next(iter(test))] if len(test) == 1 and next(iter(test)) in ("=", "in") else test


def rules_text(rules: Sequence[Rule]) -> str:
    """Return a whole rule file."""
    return "rules:\n" + "".join(f"  - {_written(rule, 4)}\n" for rule in rules)


def _written(rule: Rule, column: int | None) -> str:
    """Return a rule as lines indented to a column, or in braces on one line."""
    if column is None:
        return write_yaml(written_rule(rule), flow=True)
    return write_yaml(written_rule(rule)).replace("\n", "\n" + " " * column)


def _value(value: Any) -> str:
    return write_yaml([value], flow=True)[1:-1]


class RuleText:
    """The text of a rule file during a change."""

    def __init__(self, text: str) -> None:
        self.text = text

    def set_state(self, rule_id: str, state: State) -> None:
        """Give a rule a state."""
        rule = self._rule(rule_id)
        there = next((value for key, value in rule.value if key.value == "state"), None)
        self._apply(
            [self._new_state(rule, state) if there is None else (there.start_mark.index, there.end_mark.index, state)]
        )

    def _new_state(self, rule: MappingNode, state: str) -> _Edit:
        end = next(value for key, value in rule.value if key.value == "rule_id").end_mark.index
        at = end if rule.flow_style else self._end_of_line(end)
        return at, at, f", state: {state}" if rule.flow_style else f"\n{' ' * rule.start_mark.column}state: {state}"

    def put(self, rule: Rule, before: Rule | None = None) -> None:
        """Replace the rule with this id, or append it; comments in the lines of `before` stay if possible."""
        rules, edits = self._rules(), None
        there = next((node for node in rules.value if _rule_id(node) == rule.rule_id), None)
        if there is None:
            end, column = self._end(rules.value[-1]), rules.start_mark.column
            at = end if rules.flow_style else self._end_of_line(end)
            text = (
                f", {_written(rule, None)}" if rules.flow_style else f"\n{' ' * column}- {_written(rule, column + 2)}"
            )
            edits = [(at, at, text)]
        elif before is not None and "&" not in self.text:  # the value of an alias is written elsewhere
            edits = self._rule_edits(there, written_rule(before), written_rule(rule))
        if there is not None and edits is None:
            text = _written(rule, None if there.flow_style else there.start_mark.column)
            edits = [(there.start_mark.index, self._end(there), text)]
        self._apply(edits or [])

    def _rule_edits(self, node: MappingNode, old: dict[str, Any], new: dict[str, Any]) -> list[_Edit] | None:
        """Return the edits that change a rule; None if fields other than its policies are added or removed."""
        pairs = {key.value: (key, value) for key, value in node.value}
        edits = self._edits(
            node, *({name: fields[name] for name in fields if name not in _OPTIONAL} for fields in (old, new))
        )
        if edits is None:
            return None
        removed = set()
        for name in pairs.keys() & _OPTIONAL:
            before, after = (fields.get(name, _WRITTEN_DEFAULTS.get(name)) for fields in (old, new))
            key, value = pairs[name]
            if after is None and before is not None:
                removed.add(name)
                begin, end = self._line_ends(key, value)
                if node.flow_style or self.text[begin : key.start_mark.index].strip():
                    return None
                edits.append((begin, end, ""))
            elif after != before:
                edits.append(self._exchanged(value, after))
        last = max(self._end(value) for name, (_, value) in pairs.items() if name not in removed)
        return edits + self._added(node, last, {name: new[name] for name in new if name in _OPTIONAL - pairs.keys()})

    def _added(self, node: MappingNode, last: int, fields: dict[str, Any]) -> list[_Edit]:
        """Return the edits that add fields to a rule: its state below the id, others after the end of `last`."""
        edits = [self._new_state(node, fields.pop("state"))] if "state" in fields else []
        column, at = node.start_mark.column, last if node.flow_style else self._end_of_line(last)
        for name, value in fields.items():
            in_lines = name == "snoozes" and not node.flow_style
            text = f"{name}:{_lines(value, column + 2)}" if in_lines else f"{name}: {_value(value)}"
            edits.append((at, at, f", {text}" if node.flow_style else f"\n{' ' * column}{text}"))
        return edits

    def _edits(self, node: MappingNode, old: dict[str, Any], new: dict[str, Any]) -> list[_Edit] | None:
        """Return the edits that change a mapping; None if its fields are not the same."""
        values = {key.value: value for key, value in node.value}
        edits: list[_Edit] = []
        if set(old) != set(new) or not set(new) <= set(values):
            return None
        for name in (name for name in new if old[name] != new[name]):
            value = values[name]
            if name != "features" or value.flow_style:
                edits.append(self._exchanged(value, new[name]))
                continue
            added = [feature for feature in new[name] if feature not in old[name]]
            kept = {feature: new[name][feature] for feature in old[name] if feature in new[name]}
            inner = self._edits(value, old[name], kept)
            if inner is None:
                return None
            indent, end = " " * value.start_mark.column, self._end_of_line(self._end(value))
            lines = "".join(f"\n{indent}{feature}: {_value(new[name][feature])}" for feature in added)
            edits += [*inner, (end, end, lines)]
        return edits

    def _exchanged(self, node: Node, value: Any) -> _Edit:
        """Return the edit that replaces the value of a node; a list of lines stays one."""
        if not isinstance(node, SequenceNode) or node.flow_style:
            return node.start_mark.index, self._end(node), _value(value)
        column = node.start_mark.column
        return node.start_mark.index - column, self._end(node), _lines(value, column).removeprefix("\n")

    def delete(self, rule_id: str) -> None:
        """Remove a rule."""
        rules, rule = self._rules(), self._rule(rule_id)
        begin, end = self._line_ends(rule, rule)
        # A test may name the rule: its id appears in the tests.
        is_tested = any(rule_id in _texts(value) for key, value in self._top().value if key.value == "tests")
        is_alone = len(rules.value) == 1 or rules.flow_style
        if is_alone or is_tested or self.text[begin : rule.start_mark.index].strip() != "-":
            self.set_state(rule_id, "DELETE")
        else:
            self._apply([(begin, end, "")])

    def _top(self) -> MappingNode:
        root = compose_yaml(self.text)
        assert isinstance(root, MappingNode)
        return root

    def _rules(self) -> SequenceNode:
        (rules,) = (value for key, value in self._top().value if key.value == "rules")
        assert isinstance(rules, SequenceNode)
        return rules

    def _rule(self, rule_id: str) -> MappingNode:
        rule = next(rule for rule in self._rules().value if _rule_id(rule) == rule_id)
        assert isinstance(rule, MappingNode)
        return rule

    def _end(self, node: Node) -> int:
        """Return where the last thing in a node ends, since the parser includes the comments after a block."""
        while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
            last = node.value[-1]
            node = last[1] if isinstance(last, tuple) else last
        return len(self.text[: node.end_mark.index].rstrip())

    def _end_of_line(self, index: int) -> int:
        at = self.text.find("\n", index)
        return len(self.text) if at < 0 else at

    def _line_ends(self, first: Node, last: Node) -> tuple[int, int]:
        """Return where the line of a node begins, and where the line after another node begins."""
        begin = self.text.rfind("\n", 0, first.start_mark.index) + 1
        return begin, min(self._end_of_line(self._end(last)) + 1, len(self.text))

    def _apply(self, edits: list[_Edit]) -> None:
        """Apply edits from the last to the first; several edits in one place keep their order."""
        edits.sort(key=lambda edit: edit[0])
        for begin, end, text in reversed(edits):
            self.text = self.text[:begin] + text + self.text[end:]


def _lines(values: Iterable[Any], column: int) -> str:
    return "".join(f"\n{' ' * column}- {_value(value)}" for value in values)


def _texts(node: Node) -> set[str]:
    if isinstance(node, MappingNode):
        return set().union(*(_texts(value) for _, value in node.value))
    return set().union(*map(_texts, node.value)) if isinstance(node, SequenceNode) else {node.value}


def _rule_id(node: Node) -> str | None:
    assert isinstance(node, MappingNode)
    return next((value.value for key, value in node.value if key.value == "rule_id"), None)


def change_files(
    path: Path, states: Mapping[str, State], put: Sequence[Rule], new_file: str, notes: Mapping[str, ChangeNote]
) -> list[Path]:
    """Change the rules of a file, or of the files of a folder; return the files written, each atomically.

    Concurrent writers wait for each other, and each sees the text of the previous one. Object stores have no locks: a
    file is written only if nobody else has changed it, otherwise the edit is repeated.

    Args:
        path: the file or folder, which holds valid rules.
        states: the new states of rules that are there; DELETE removes one.
        put: rules that change or are new.
        new_file: name of the file in a folder that takes new rules.
        notes: who changes each rule, and why.

    Raises:
        BucketsError: a file is written in a way that cannot be changed by program, or cannot be written.
    """
    if not isinstance(path, StorePath):
        with held(path if path.is_dir() else path.parent):
            return _change_files(path, states, put, new_file, notes)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(_ChangedMeanwhileError):
            return _change_files(path, states, put, new_file, notes)
    message = f"rules {path}: others change them all the time; try again later"
    raise BucketsError(message)


class _ChangedMeanwhileError(Exception):
    """Somebody else has changed an object since it was read."""


def _change_files(
    path: Path, states: Mapping[str, State], put: Sequence[Rule], new_file: str, notes: Mapping[str, ChangeNote]
) -> list[Path]:
    tags: dict[Path, str] = {file: file.tag() for file in rule_files(path) if isinstance(file, StorePath)}
    home = {rule.rule_id: file for file in rule_files(path) for rule in load_rules(file)}
    gone = next((rule_id for rule_id in states if rule_id not in home), None)
    if gone is not None:
        message = f"rules {path}: rule {gone!r} is not there any more; somebody has changed them, so look at them again"
        raise BucketsError(message)
    into = path / new_file if path.is_dir() else path
    files = {home.get(rule_id, into) for rule_id in (*states, *(rule.rule_id for rule in put))}
    texts: dict[Path, tuple[str, dict[str, ChangeNote]]] = {}
    for file in sorted(files):
        rules = [rule for rule in put if home.get(rule.rule_id, into) == file]
        of_file = {rule_id: state for rule_id, state in states.items() if home[rule_id] == file}
        noted = {
            rule_id: notes[rule_id] for rule_id in (*of_file, *(rule.rule_id for rule in rules)) if rule_id in notes
        }
        try:
            texts[file] = (_changed(file, of_file, rules) if file.exists() else rules_text(rules)), noted
        except (BucketsError, KeyError):
            if isinstance(file, StorePath) and file.tag() != tags.get(file):
                raise _ChangedMeanwhileError from None
            raise
    for file, (text, noted) in texts.items():
        _write(file, text, noted, tags.get(file))
    return list(texts)


def _changed(file: Path, states: Mapping[str, State], put: Sequence[Rule]) -> str:
    """Return the text of a file after the changes, parsed again and compared with the wanted rules."""
    before = {rule.rule_id: rule for rule in load_rules(file)}
    raw = file.read_bytes().decode()
    if holds_flink_rules(file, raw):
        message = (
            f"rule file {file}: holds rules of the Flink demo, which no command changes; make a YAML file of it with "
            "`buckets rules import`, or change it by hand"
        )
        raise BucketsError(message)
    lines = "\r\n" if "\r\n" in raw else "\n"
    edited = RuleText(raw.replace("\r\n", "\n"))
    wanted = before | {rule.rule_id: rule for rule in put}
    for rule_id, state in states.items():
        wanted[rule_id] = before[rule_id].model_copy(update={"state": state})
    try:
        for rule in put:
            edited.put(rule, before.get(rule.rule_id))
        for rule_id, state in states.items():
            edited.delete(rule_id) if state == "DELETE" else edited.set_state(rule_id, state)
        rules = [Rule.model_validate(written) for written in parse_yaml(edited.text, file, "rule file")[0]["rules"]]
    except (BucketsError, yaml.YAMLError, ValueError, TypeError, KeyError, AssertionError, StopIteration):
        rules = []
    if _live(rules) != _live(wanted.values()):
        message = (
            f"rule file {file}: is written in a way that cannot be changed by program (anchors, aliases or several "
            "documents); change it by hand"
        )
        raise BucketsError(message)
    return edited.text.replace("\n", lines)


def _live(rules: Any) -> dict[str, Rule]:
    return {rule.rule_id: rule for rule in rules if rule.state != "DELETE"}


def _write(file: Path, text: str, notes: Mapping[str, ChangeNote], tag: str | None) -> None:
    """Write the notes on a file, then the file itself, at the target of a link, keeping its mode."""
    target = file.resolve()
    try:
        if isinstance(target, StorePath):
            write_change_notes(file, text, notes)
            content = text.encode()
            if (target.write_first(content) if tag is None else target.write_over(content, tag)) is None:
                raise _ChangedMeanwhileError
            return
        mode = target.stat().st_mode if target.exists() else None
        write_change_notes(file, text, notes)
        write_whole(target, text)
        if mode is not None:
            target.chmod(mode)
    except OSError as error:
        message = f"rule file {file}: cannot be written ({error.strerror}); see who may write to its folder"
        raise BucketsError(message) from None
