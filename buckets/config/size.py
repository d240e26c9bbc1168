"""Sizes as people write them (`256MiB`, `1.5GiB`, `4096`) and as the engine counts them: bytes."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

BYTES_PER_UNIT = {
    "": 1,
    "b": 1,
    **{f"{prefix}ib": 1 << 10 * power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
}
LARGEST_BYTES = 1 << 50
_FORM = re.compile(r"(\d{1,16}(?:\.\d{1,6})?) *([a-z]{0,3})", re.ASCII | re.IGNORECASE)


def parse_size_bytes(text: Any) -> int:
    """Read a size such as `256MiB`.

    Args:
        text: a number of bytes, or digits and a unit, `KiB | MiB | GiB | TiB` (powers of 1,024) or
            `KB | MB | GB | TB` (powers of 1,000), in any case.

    Returns:
        The size in bytes, 0 to 1 PiB; what is left of a byte is dropped.

    Raises:
        ValueError: not of that form, or more than that.
    """
    is_written = isinstance(text, (int, float, str)) and not isinstance(text, bool)
    match = _FORM.fullmatch(str(text).strip()) if is_written else None
    unit = BYTES_PER_UNIT.get(match[2].lower()) if match is not None else None
    if match is None or unit is None:
        message = f"{_short(text)} is not a size; write 0 or more, as in 0, 65536, 256MiB or 1.5GiB"
        raise ValueError(message)
    size = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if size > LARGEST_BYTES:
        message = f"{_short(text)} is more than the limit of 1024TiB"
        raise ValueError(message)
    return size


def _short(value: Any) -> str:
    written = repr(value)
    return written if len(written) <= 40 else f"{written[:40]}..."


SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
"""A pydantic field that is written as a size and read as bytes."""
