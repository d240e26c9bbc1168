"""YAML 1.2 with its core schema, reduced to what settings and rules need, for reading and writing.

PyYAML reads version 1.1, in which `NO` is false, `0200` is octal and `1:30` is ninety. Here only `true`, `false` and
`null` (`~`) are anything but text; numbers stay the text that was written, which keeps every digit. Text that other
programs may read differently is quoted when it is written.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode

from buckets.printable import unseen_character
from buckets.validation import DEEPEST

MOST_ALIASED = 100_000
"""Values that all aliases of a file together may stand for: aliases of aliases double with every line."""
_TAG = "tag:yaml.org,2002:"
_WIDTH = 120


class _Loader(yaml.SafeLoader):
    """Reads one document, in which each key appears once."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}  # type: ignore[misc]
    yaml_constructors: ClassVar[dict[str | None, Callable[..., Any]]] = {
        f"{_TAG}seq": SafeConstructor.construct_yaml_seq,
        f"{_TAG}map": SafeConstructor.construct_yaml_map,
        f"{_TAG}null": SafeConstructor.construct_yaml_null,
        **{f"{_TAG}{kind}": SafeConstructor.construct_yaml_str for kind in ("str", "int", "float", "merge")},
        None: SafeConstructor.construct_undefined,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = self._aliased = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._count_alias(event)
            return super().compose_node(parent, index)
        if self._depth == DEEPEST:
            raise ComposerError(None, None, f"values are nested more than {DEEPEST} deep", event.start_mark)
        before = self._values
        self._values += 1
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if event.anchor is not None:
            self._sizes[event.anchor] = self._values - before
        return node

    def _count_alias(self, event: Any) -> None:
        """Check that an alias is not inside the value that it names, and that aliases do not expand to too much."""
        if event.anchor not in self.anchors:
            return  # PyYAML reports it
        if event.anchor not in self._sizes:
            raise ComposerError(None, None, f"alias *{event.anchor} stands inside what it names", event.start_mark)
        self._values += self._sizes[event.anchor]
        self._aliased += self._sizes[event.anchor]
        if self._aliased > MOST_ALIASED:
            problem = f"the aliases up to here stand for more than {MOST_ALIASED:,} values"
            raise ComposerError(None, None, problem, event.start_mark)

    def compose_scalar_node(self, anchor: Any) -> ScalarNode:
        node = super().compose_scalar_node(anchor)
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise ComposerError(None, None, f"{node.value!a} holds half a character", node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise ComposerError(None, None, "a key must be a text", key.start_mark)
            if key.value in seen:
                raise ComposerError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return node

    def construct_mapping(self, node: Node, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping whose keys are the text that was written."""
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, "expected a mapping", node.start_mark)
        self.flatten_mapping(node)
        mapping = {}
        for key, value in node.value:
            self.construct_object(key)  # refuses tags that mean nothing
            mapping[key.value] = self.construct_object(value, deep=deep)
        return mapping


def _as_boolean(loader: _Loader, node: ScalarNode) -> bool:
    text = str(loader.construct_scalar(node)).lower()
    if text not in ("true", "false"):
        raise ConstructorError(None, None, f"{text!r} is neither true nor false", node.start_mark)
    return text == "true"


for _kind, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"(?:{_pattern})\\Z"), _first)
_Loader.add_constructor(f"{_TAG}bool", _as_boolean)


class InBraces(dict[str, Any]):
    """A mapping that is written in braces, whatever it holds."""


class _Dumper(yaml.SafeDumper):
    """Quotes a text that version 1.1 or 1.2 would not read as text, and escapes what cannot be seen."""

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Write a text in double quotes; if it has invisible characters, escape everything but ASCII."""
        self.allow_unicode = unseen_character(text, "\n") is None
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def _quoted_where_needed(dumper: _Dumper, text: str) -> Node:
    """Represent a text, in double quotes if it has invisible characters, such as U+0085, which only they preserve."""
    return dumper.represent_scalar(f"{_TAG}str", text, style='"' if unseen_character(text, "\n") else None)


_Dumper.add_representer(str, _quoted_where_needed)
_Dumper.add_representer(InBraces, lambda dumper, data: dumper.represent_mapping(f"{_TAG}map", data, flow_style=True))
_Dumper.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"(?:0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)\Z"),
    list("-+.0123456789"),
)


def compose_yaml(text: str) -> Node | None:
    """Return the node tree of a text, with the positions of all nodes; raises yaml.YAMLError."""
    return yaml.compose(text, Loader=_Loader)


def read_yaml(text: str) -> tuple[Any, Node | None]:
    """Read a text as plain data (mappings, lists, text, booleans and None) and as its node tree.

    Raises yaml.YAMLError, with its mark but for a character that YAML does not allow.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else loader.construct_document(node), node
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version of a hundred digits
        raise yaml.MarkedYAMLError(problem=str(error), problem_mark=loader.get_mark()) from None
    finally:
        loader.dispose()


def write_yaml(data: Any, flow: bool = False) -> str:
    """Write plain data as YAML, in braces and on one line if `flow` is set; without a line break at its end."""
    width = 10**9 if flow else _WIDTH
    style = True if flow else None
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=style, allow_unicode=True, width=width)
    return str(text).rstrip("\n")
