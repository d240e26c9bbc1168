"""An entry of a list, and changes to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})
RESERVED: Final = ("key", "until", "author", "reason")
"""What an entry has besides its values; no value may be called so."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a list has for a key.

    Attributes:
        values: what can be looked up, by name.
        until_ms: from which event time on it does not count any more, in ms since 1970; None: it always counts.
        author: who wrote it.
        reason: why.
    """

    values: Mapping[str, str] = field(default_factory=lambda: _NO_VALUES)
    until_ms: int | None = None
    author: str = ""
    reason: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return the entry as JSON has it."""
        record: dict[str, Any] = {"values": dict(self.values)} if self.values else {}
        record |= {} if self.until_ms is None else {"until_ms": self.until_ms}
        return record | {name: text for name in ("author", "reason") if (text := getattr(self, name))}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Entry":
        """Read what `to_record` has made."""
        return cls(
            values=record.get("values", _NO_VALUES),
            until_ms=record.get("until_ms"),
            author=record.get("author", ""),
            reason=record.get("reason", ""),
        )


Changes = Mapping[str, Entry | None]
"""By key, its entry from now on; None where it is removed."""
