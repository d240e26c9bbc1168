"""Parts of a configuration, whose texts may name environment variables, so that no file needs to hold a password."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from pydantic import SecretStr, ValidationInfo, field_validator

from buckets.validation import VARIABLE, Checked, models_in, types_in

_SECRET_NAME: Final = re.compile(r"secret|password|token|access[._]?key|account[._]?key", re.IGNORECASE)
"""What the name of a setting of Spark has in it where its value is a secret."""


class Settings(Checked):
    """A part of a configuration.

    In each text `${NAME}` is replaced by that environment variable. A secret is a field of type `SecretStr`, or a
    setting of Spark with the name of one; a `$` that is left over there is refused, since a program that takes it for
    the secret itself would let everybody in who has read the configuration.
    """

    takes_variables: ClassVar[bool] = True  # That a fault of a value may be one of a variable's

    @field_validator("*", mode="before")
    @classmethod
    def _with_variables(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, str):
            return _replaced(value, SecretStr in types_in(annotation))
        return value if models_in(annotation) else _all_replaced(value)


def secrets_of(value: Any, name: str = "") -> Iterator[str]:
    """Return each secret of a part of a configuration, which must never be shown."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, str) and _SECRET_NAME.search(name):
        yield value
    elif isinstance(value, Settings | dict):
        inner: Iterable[tuple[str, Any]] = value.items() if isinstance(value, dict) else value
        for inner_name, each in inner:
            yield from secrets_of(each, str(inner_name) if isinstance(value, dict) else "")


def from_environment(text: str) -> str:
    """Return a text with each `${NAME}` replaced by that variable; ValueError if one is not set, or empty."""

    def look_up(match: re.Match[str]) -> str:
        name = match[1]
        if not os.environ.get(name):
            state = "empty" if name in os.environ else "not set"
            message = f"environment variable {name} is {state}; set it, or write the value itself"
            raise ValueError(message)
        return os.environ[name]

    return VARIABLE.sub(look_up, text)


def _all_replaced(value: Any, name: str = "") -> Any:
    """Return a value whose texts, also those of lists and mappings within it, have their variables replaced."""
    if isinstance(value, str):
        return _replaced(value, _SECRET_NAME.search(name) is not None)
    if isinstance(value, dict):
        return {key: _all_replaced(inner, str(key)) for key, inner in value.items()}
    return [_all_replaced(inner) for inner in value] if isinstance(value, list | tuple) else value


def _replaced(text: str, is_secret: bool) -> str:
    if is_secret and not text:
        message = "is empty; write ${NAME}, the environment variable that has it, or leave the setting out"
        raise ValueError(message)
    if is_secret and "$" in VARIABLE.sub("", text):
        message = (
            "has a $ that begins no environment variable as in ${NAME}; correct it, or put a secret with a $ in it "
            "into a variable"
        )
        raise ValueError(message)
    return from_environment(text)
