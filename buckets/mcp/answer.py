"""What tools answer: models whose fields are described to assistants by the texts beneath them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from buckets.moment import iso_text

MOST_ROWS = 200
"""So many rows at most has a list in an answer."""
Limit = Annotated[int, Field(ge=1, le=MOST_ROWS, description="How many rows at most.")]
Offset = Annotated[int, Field(ge=0, description="How many rows to leave out, to read on where has_more was true.")]
FromTime = Annotated[
    str, Field(description="The first event time, in ISO 8601 and UTC, as in 2026-01-03 or 2026-01-03T10:00Z.")
]
ToTime = Annotated[str, Field(description="The first event time that does not count any more, in the same form.")]


class ToolAnswer(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


def time_text(time_ms: int | None) -> str | None:
    """Return a time as answers have it: in ISO 8601 and UTC."""
    return None if time_ms is None else iso_text(time_ms)


def plain_key(key: Any) -> dict[str, Any]:
    """Return the key of a row, which may have none."""
    return dict(key or {})
