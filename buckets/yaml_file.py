"""Reads YAML files into validated models; an error names the file, the line and the field."""

import os
import stat
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.nodes import MappingNode, Node, SequenceNode

from buckets.errors import BucketsError, first_line
from buckets.printable import short_line
from buckets.validation import Location, first_fault
from buckets.yaml_dialect import read_yaml

Model = TypeVar("Model", bound=BaseModel)
LARGEST_BYTES = 32 * 2**20
"""Bytes of the largest file that is read: room for 100,000 rules."""


def read_text(path: Path, what: str) -> str:
    """Read a UTF-8 file.

    Args:
        path: the file.
        what: what the file is, for error messages.

    Raises:
        BucketsError: there is no such file, or it is not a regular file, too large, empty, or not UTF-8.
    """
    try:
        content = _read_bytes(path, what)
    except IsADirectoryError:
        message = f"{what} {path}: is a directory; name a file"
        raise BucketsError(message) from None
    except FileNotFoundError:
        message = f"{what} {path}: no such file; check the path"
        raise BucketsError(message) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        message = f"{what} {path}: cannot be read ({why}); see that it is there and who may read it"
        raise BucketsError(message) from None
    try:
        text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{what} {path}:{line}: cannot be read ({error}); it must be a UTF-8 text file"
        raise BucketsError(message) from None
    if not text.strip():
        message = f"{what} {path}: is empty"
        raise BucketsError(message)
    return text


def _read_bytes(path: Path, what: str) -> bytes:
    """The bytes of a file; a pipe or a device, which might never end, is refused at once."""
    with open(path, "rb", opener=_open_at_once) as file:  # Path.open takes no opener
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            message = f"{what} {path}: is a pipe or a device; name a file"
            raise BucketsError(message)
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        message = f"{what} {path}: is larger than {LARGEST_BYTES:,} bytes; make several files of it"
        raise BucketsError(message)
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse_yaml(text: str, path: Path, what: str) -> tuple[Any, Node | None]:
    """Parse YAML into plain data and its node tree, which knows the lines.

    Raises:
        BucketsError: broken YAML, with its line.
    """
    try:
        return read_yaml(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = ' (quote operators: ">", "!=")' if not isinstance(error, yaml.composer.ComposerError) else ""
        message = f"{what} {path}:{line}: broken YAML: {short_line(str(error.problem))}{hint}"
        raise BucketsError(message) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"{what} {path}:{line}: broken YAML: unacceptable character U+{error.character:04X}"
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


def invalid(error: ValidationError, path: Path, root: Node | None, what: str, prefix: Location = ()) -> BucketsError:
    """The error that names the file, line, field and reason of the first fault."""
    location, fault = first_fault(error, prefix)
    return BucketsError(f"{what} {path}:{line_of(root, location)}: {fault}")


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
