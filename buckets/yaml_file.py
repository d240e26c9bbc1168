"""YAML files into checked models; what is wrong is said with file, line and field."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from buckets.errors import BucketsError, first_line

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[int | str, ...]


class _PlainLoader(yaml.SafeLoader):
    """A safe loader for what people mean: a key stands once, and numbers and dates are the text that was written.

    YAML itself would swallow the first of two keys, read 0200 as octal, and 0.1 as binary floating point.
    """

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                problem = f"key {key_node.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _as_text(loader: _PlainLoader, node: ScalarNode) -> str:
    return str(loader.construct_scalar(node))


for _tag in ("int", "float", "timestamp", "value"):  # `value` is a bare `=`
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _as_text)


def read_text(path: Path, what: str) -> str:
    """Read a UTF-8 file.

    Args:
        path: the file.
        what: what the file is, for the error message.

    Raises:
        BucketsError: no such file, a directory, empty, or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except IsADirectoryError:
        message = f"{what} {path}: is a directory; name a file"
        raise BucketsError(message) from None
    except FileNotFoundError:
        message = f"{what} {path}: no such file; check the path"
        raise BucketsError(message) from None
    except (OSError, UnicodeDecodeError) as error:
        message = f"{what} {path}: cannot be read ({first_line(error)}); it must be a UTF-8 text file"
        raise BucketsError(message) from None
    if not text.strip():
        message = f"{what} {path}: is empty"
        raise BucketsError(message)
    return text


def parse_yaml(text: str, path: Path, what: str) -> tuple[Any, Node | None]:
    """Parse YAML into plain data and its node tree, which knows the lines.

    Raises:
        BucketsError: broken YAML, with its line.
    """
    try:
        return yaml.load(text, _PlainLoader), yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        message = f'{what} {path}:{line}: broken YAML: {error.problem} (quote operators: ">", "!=")'
        raise BucketsError(message) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        message = f"{what} {path}: broken YAML: {' '.join(str(error).split())}"
        raise BucketsError(message) from None


def line_of(root: Node | None, location: Location) -> int:
    """The line, from 1, of the deepest node on the way to `location`."""
    node, line = root, 1
    for step in location:
        child: Node | None = None
        if isinstance(node, MappingNode):
            child = next((value for key, value in node.value if key.value == str(step)), None)
            line = next((key.start_mark.line + 1 for key, _ in node.value if key.value == str(step)), line)
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            child = node.value[step]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line


def field_name(location: Location) -> str:
    """A location as people write it: `rules[2].window.length`."""
    text = ""
    for step in location:
        text += f"[{step + 1}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def reason(error: Any) -> str:
    """One validation error in plain words."""
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "missing":
        return "is missing"
    text = str(error["msg"]).removeprefix("Value error, ")
    given = error.get("input")
    if error["type"] != "value_error" and isinstance(given, str | int | float | bool):
        return f"{text}, not {given!r}"
    return text


def invalid(error: ValidationError, path: Path, root: Node | None, what: str, prefix: Location = ()) -> BucketsError:
    """The error that names file, line, field and reason of the first thing that is wrong."""
    first, *more = error.errors()
    location: Location = (*prefix, *(step for step in first["loc"] if step != "function-before"))
    also = f" (and {len(more)} more)" if more else ""
    where = f"{path}:{line_of(root, location)}"
    named = f"{field_name(location)}: " if location else ""
    return BucketsError(f"{what} {where}: {named}{reason(first)}{also}")


def load_model(path: Path, model: type[Model], what: str) -> Model:
    """Read a YAML file into a pydantic model.

    Raises:
        BucketsError: the file cannot be read, is broken YAML, or does not fit the model.
    """
    data, root = parse_yaml(read_text(path, what), path, what)
    if not isinstance(data, dict):
        message = f"{what} {path}: must be a mapping of fields, not {type(data).__name__}"
        raise BucketsError(message)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid(error, path, root, what) from None
