"""Moments as people write them, in ISO 8601, and as the engine counts them: milliseconds since the epoch."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_zone(moment: datetime) -> datetime:
    """A moment with its zone; one without is in UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def moment_ms(moment: datetime) -> int:
    """The first millisecond since the epoch that is not before a moment; one without a zone is in UTC."""
    return -((_EPOCH - with_zone(moment)) // timedelta(milliseconds=1))


def moment_text(moment: datetime) -> str:
    """A moment in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


Moment = Annotated[datetime, AfterValidator(with_zone), PlainSerializer(moment_text, return_type=str, when_used="json")]
"""A pydantic field that is written as ISO 8601, also in JSON; without a zone it is in UTC."""
