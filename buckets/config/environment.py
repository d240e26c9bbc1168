"""Environment variables in a configuration, so that no file needs to hold a password."""

import os
import re
from typing import Any

from buckets.validation import VARIABLE


def from_environment(value: Any) -> Any:
    """Return text with each `${NAME}` replaced by that environment variable; anything else as it is.

    Raises:
        ValueError: a variable is not set.
    """
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            message = f"environment variable {name} is not set; set it, or write the value itself"
            raise ValueError(message)
        return os.environ[name]

    return VARIABLE.sub(look_up, value)
