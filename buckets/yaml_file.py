"""Reads YAML files into validated models; an error names the file, the line and the field."""

import codecs
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, SequenceNode

from buckets.errors import BucketsError, first_line, refuse
from buckets.printable import short_line
from buckets.stores.location import in_file_system
from buckets.stores.store_path import StoreError, StorePath
from buckets.validation import VARIABLE, Location, faults_of
from buckets.yaml_dialect import read_yaml

Model = TypeVar("Model", bound=BaseModel)
LARGEST_BYTES = 32 * 2**20  # Bytes of the largest file that is read: room for 100,000 rules


def _fault(what: str, path: Path, reason: str, line: int | None = None) -> BucketsError:
    return BucketsError(f"{what} {path}{'' if line is None else f':{line}'}: {reason}")


def read_text(path: Path, what: str) -> str:
    """Read a regular UTF-8 file that is neither empty nor too large; refuse any other."""
    content = read_content(path, what)
    if is_utf16(content):
        raise _fault(what, path, "is UTF-16; save it as UTF-8", 1)
    try:
        text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _fault(what, path, f"cannot be read ({error}); it must be a UTF-8 text file", line) from None
    if not text.strip():
        raise _fault(what, path, "is empty")
    return text


def read_content(path: Path, what: str) -> bytes:
    """Read the bytes of a file; arguments and errors as in `read_text`, but for an empty file or its text."""
    try:
        return _read_bytes(path, what)
    except IsADirectoryError:
        raise _fault(what, path, "is a directory; name a file") from None
    except FileNotFoundError:
        raise _fault(what, path, "no such file; check the path") from None
    except StoreError:  # it says what is to be done
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise _fault(what, path, f"cannot be read ({why}); see that it is there and who may read it") from None


def is_utf16(content: bytes) -> bool:
    """Return whether text is UTF-16, by its byte order mark or the bytes of its first character."""
    return content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or content[:2].count(0) == 1


def _read_bytes(path: Path, what: str) -> bytes:
    """Read the bytes of a file; refuse a pipe or a device, which might never end, at once."""
    if isinstance(path, StorePath):
        with path.open("rb") as object_file:
            content = bytes(object_file.read(LARGEST_BYTES + 1))
    else:
        with open(in_file_system(path), "rb", opener=_open_at_once) as file:  # Path.open takes no opener
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _fault(what, path, "is a pipe or a device; name a file")
            content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise _fault(what, path, f"is larger than {LARGEST_BYTES:,} bytes; divide it into several files")
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse_yaml(text: str, path: Path, what: str) -> tuple[Any, Node | None]:
    """Parse YAML into plain data and its node tree, which has the lines; refuse broken YAML with its line."""
    try:
        return read_yaml(text)
    except yaml.MarkedYAMLError as error:
        _check_brackets(error, text, path, what)
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = ' (quote operators: ">", "!=")' if not isinstance(error, yaml.composer.ComposerError) else ""
        raise _fault(what, path, f"broken YAML: {short_line(str(error.problem))}{hint}", line) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _fault(what, path, f"broken YAML: unacceptable character U+{error.character:04X}", line) from None


def _check_brackets(error: yaml.MarkedYAMLError, text: str, path: Path, what: str) -> None:
    """Raise a clearer error if the YAML is broken inside brackets, with the bracket or a variable as the cause."""
    opened, at = error.context_mark, error.problem_mark
    if opened is None or at is None or not str(error.context).endswith(("flow mapping", "flow sequence")):
        return
    variable = VARIABLE.search(text.splitlines()[at.line][max(at.column - 1, 0) :]) if at.column else None
    if variable is not None and variable.start() == 0:
        way_out = "put it in quotes in a configuration; write the value itself elsewhere"
        raise _fault(what, path, f"{variable[0]} cannot be in brackets unquoted; {way_out}", at.line + 1) from None
    bracket = text[opened.index]
    there = text[at.index : at.index + 1]
    raise BucketsError(
        f"{what} {path}:{opened.line + 1}: broken YAML: {bracket!r} is not closed, or a comma is missing, before "
        f"{there!r} on line {at.line + 1}"
        if there.strip()
        else f"{what} {path}:{opened.line + 1}: broken YAML: {bracket!r} is not closed"
    ) from None


def line_of(root: Node | None, location: Location) -> int:
    """Return the line, from 1, of the deepest node on the way to `location`."""
    line = 1
    for mark, _ in _way(root, location):
        line = mark.line + 1
    return line


def node_at(root: Node | None, location: Location) -> Node | None:
    """Return the node at `location`; None if it is missing."""
    nodes = [root, *(node for _, node in _way(root, location))]
    return nodes[-1] if len(nodes) > len(location) else None


def _way(node: Node | None, location: Location) -> Iterator[tuple[Mark, Node]]:
    """Yield the existing nodes on the way to `location`, each with the position of its name."""
    for step in location:
        if isinstance(node, MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(step)), None)
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            pair = node.value[step], node.value[step]
        else:
            pair = None
        if pair is None:
            return
        named, node = pair
        yield named.start_mark, node


def invalid(
    error: ValidationError,
    path: Path,
    root: Node | None,
    what: str,
    model: type[BaseModel],
    prefix: Location = (),
) -> list[BucketsError]:
    """Return one error per fault, which names file, line, field and reason."""
    faults = faults_of(error, prefix, model)
    return [BucketsError(f"{what} {path}:{line_of(root, location)}: {fault}") for location, fault in faults]


def load_model(path: Path, model: type[Model], what: str) -> Model:
    """Read a YAML file into a pydantic model; refuse one that does not fit."""
    value, faults = read_model(path, model, what)
    refuse(faults)
    assert value is not None
    return value


def read_model(path: Path, model: type[Model], what: str) -> tuple[Model | None, list[BucketsError]]:
    """Read a YAML file as `load_model` does; return the model, or None and all faults of the file."""
    try:
        data, root = load_mapping(path, what)
    except BucketsError as error:
        return None, [error]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, invalid(error, path, root, what, model)


def load_mapping(path: Path, what: str) -> tuple[dict[Any, Any], Node | None]:
    """Read a YAML file with a mapping as plain data and its node tree; refuse any other."""
    data, root = parse_yaml(read_text(path, what), path, what)
    if not isinstance(data, dict):
        raise _fault(what, path, f"must be a mapping of fields, not {type(data).__name__}")
    return data, root
