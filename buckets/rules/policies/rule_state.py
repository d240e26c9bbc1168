"""What policies remember of a rule and a key, from one alert to the next."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class RuleState(NamedTuple):
    """What is remembered of a rule and key.

    Attributes:
        alert_ms: the greatest time of an event that made an alert, in ms; None where none did, or nothing asks for it.
        held_back: how many alerts have been held back since the last one.
        reset_ms: when counting started again, in ms; None where it never did.
        held_ms: the greatest time of an event whose alert has been held back since the last one; None where none was.
        others: what policies remember that have no attribute here, by the fields of their rules; values of JSON.
    """

    alert_ms: int | None = None
    held_back: int = 0
    reset_ms: int | None = None
    held_ms: int | None = None
    others: Mapping[str, Any] = MappingProxyType({})

    def at(self, clock_ms: int, quiet_ms: int | None, window_ms: int) -> "RuleState":
        """Return the state as it counts when the clock of the key has come to a time.

        What was held back is forgotten once it, and the time until which the rule is quiet, are older than the longest
        window of the group. Later than that the key may be evicted, sooner or later as batches come, and this must make
        no difference.

        Args:
            clock_ms: the clock of the key.
            quiet_ms: until when the policies of the rule need the state; None where they do not.
            window_ms: the longest window of the group.
        """
        if self.held_ms is None:
            return self
        last_ms = self.held_ms if quiet_ms is None else max(self.held_ms, quiet_ms)
        return self._replace(held_back=0, held_ms=None) if clock_ms > last_ms + window_ms else self

    def to_json(self) -> list[Any]:
        """Return the state as `RuleState(*values)` takes it; four numbers where nothing else is remembered."""
        return [*self] if self.others else [*self[:4]]


NOTHING = RuleState()
