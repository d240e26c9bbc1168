"""On which lines of its file a rule and its fields stand."""

from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, SequenceNode

from buckets.rule_files.flink_rules import holds_flink_rules
from buckets.rule_files.yaml_rules import rule_files
from buckets.validation import Location
from buckets.yaml_file import line_of, parse_yaml, read_text


@dataclass(frozen=True)
class RuleLines:
    """A rule in its file.

    Attributes:
        file: the file.
        location: where in the file the rule is.
        root: the tree of the file.
    """

    file: Path
    location: Location
    root: Node | None

    def line(self, path: tuple[str, ...]) -> int:
        """The line of a field of the rule; of the nearest one around it where it is not written."""
        return line_of(self.root, (*self.location, *path))

    @property
    def written(self) -> frozenset[str]:
        """The fields of the rule that are written."""
        node = self.root
        for step in self.location:
            node = _step(node, step)
        return frozenset(key.value for key, _ in node.value) if isinstance(node, MappingNode) else frozenset()


def _step(node: Node | None, step: int | str) -> Node | None:
    if isinstance(node, MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return node.value[step] if isinstance(node, SequenceNode) and isinstance(step, int) else None


def rule_lines(path: Path) -> dict[str, RuleLines]:
    """The rules of a file, or of a folder of files, by `rule_id`; all of them have to be valid."""
    found: dict[str, RuleLines] = {}
    for file in rule_files(path):
        text = read_text(file, "rule file")
        if holds_flink_rules(file, text):  # These have no lines of their own.
            continue
        data, root = parse_yaml(text, file, "rule file")
        listed = data.get("rules", []) if isinstance(data, dict) else []
        for index, written in enumerate(listed):
            if isinstance(written, dict) and "rule_id" in written:
                found[str(written["rule_id"])] = RuleLines(file, ("rules", index), root)
    return found
