"""Tables of the fields of pydantic models: what is written, of which type, with which default and limits."""

import inspect
import re
import types
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from buckets.config.engine import Precision
from buckets.config.settings import SizeBytes
from buckets.duration import DurationMs, format_duration
from docs.reference.markdown import code, sentence, table

Model = type[BaseModel]
_HEADER = ("Field", "Type", "Default", "Meaning")
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", re.DOTALL | re.MULTILINE)
_SIMPLE = {str: "text", int: "whole number", bool: "true or false", datetime: "moment", SecretStr: "secret text"}
_LIMITS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def model_table(model: Model) -> str:
    """Return the table of a model's fields.

    Raises:
        KeyError: a field is not described in the docstring of its class.
    """
    described, hints = _descriptions(model), get_type_hints(model, include_extras=True)
    rows = []
    for name, field in model.model_fields.items():
        kind = _type(hints[name])
        limits = _limits(field, "characters" if kind == "text" else "entries")
        meaning = " ".join([sentence(described[name]), *limits])
        rows.append((code(field.alias or name), kind, _default(model, name, field), meaning))
    return table(_HEADER, rows)


def submodels(model: Model) -> Iterator[tuple[str, Model]]:
    """Yield the models below a model, each once, with the path of the field that has it, as in `engine.precision`."""
    for name, hint in get_type_hints(model, include_extras=True).items():
        if name in model.model_fields:
            path = model.model_fields[name].alias or name
            for inner in _models(hint):
                yield path, inner
                yield from ((f"{path}.{below}", deeper) for below, deeper in submodels(inner))


def anchor(model: Model) -> str:
    """Return the anchor of a model's section on its page."""
    return model.__name__.lower()


def intro(model: Model) -> str:
    """Return what the docstring of a model says before its fields."""
    return inspect.cleandoc(model.__doc__ or "").partition("\nAttributes:")[0].strip() + "\n"


def _descriptions(model: Model) -> dict[str, str]:
    """Return what the docstrings of a model and of those that it extends say of each field."""
    described: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, _, fields = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")
        described |= {match[1]: " ".join(match[2].split()) for match in _ATTRIBUTE.finditer(fields + "\n")}
    return described


def _models(hint: Any) -> Iterator[Model]:
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        yield hint
    for inner in get_args(hint):
        yield from _models(inner)


def _type(hint: Any) -> str:
    """Return a type in words."""
    known = {DurationMs: "duration", SizeBytes: "size"}
    if get_origin(hint) is Annotated:
        return known[hint] if hint in known else _type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(code(value) for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_type(inner) for inner in get_args(hint) if inner is not types.NoneType)
    if get_origin(hint) is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        key, value = map(_type, get_args(hint))
        return f"mapping of {key} to {value}"
    if inspect.isclass(hint) and issubclass(hint, BaseModel):
        return f"[mapping](#{anchor(hint)})"
    return _SIMPLE.get(hint, "filter")


def _default(model: Model, name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if name == "tail" and issubclass(model, Precision):
        return code("all")
    value = field.get_default(call_default_factory=True)
    hint = get_type_hints(model, include_extras=True)[name]
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, BaseModel):
        given = {key: getattr(value, key) for key in value.model_fields_set}
        return code(f"{{{', '.join(f'{key}: {_plain(one)}' for key, one in given.items())}}}") if given else ""
    if hint == SizeBytes:
        unit, size = next((unit, size) for unit, size in _SIZES if value % size == 0)
        return code(f"{value // size}{unit}")
    if DurationMs in (hint, *get_args(hint)):
        return code(format_duration(value))
    return code(f"{value:%Y-%m-%d}" if isinstance(value, datetime) else _plain(value))


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limits(field: FieldInfo, items: str) -> Iterator[str]:
    """Return the limits that pydantic checks, a sentence each; a length is that of some items."""
    for constraint in field.metadata:
        for name, text in _LIMITS.items():
            if (limit := getattr(constraint, name, None)) is not None:
                yield sentence(text.format(f"{limit:,}"))
        if (longest := getattr(constraint, "max_length", None)) is not None:
            yield f"At most {longest:,} {items}."
