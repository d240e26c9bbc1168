"""`cooldown`: for a time after an alert of a key there is no other one."""

from collections.abc import Iterator, Sequence

from buckets.duration import format_duration
from buckets.moment import exact_time_text
from buckets.rules.policies.policy import AlertPolicy, EarlierAlerts, FiredAt
from buckets.rules.policies.rule_state import RuleState


class Cooldown(AlertPolicy[int]):
    """Holds back alerts earlier than the greatest time of an alert of the key and so many ms."""

    field = "cooldown"
    held_by = "cooldown"
    depends_on_alerts = True

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether an alert came out shortly before, or later by its time."""
        return state.alert_ms is not None and fired.time_ms < state.alert_ms + self.written

    def remember(self, state: RuleState, time_ms: int) -> RuleState:
        """Remember the greatest time."""
        return state._replace(alert_ms=time_ms if state.alert_ms is None else max(state.alert_ms, time_ms))

    def quiet_until_ms(self, state: RuleState) -> int | None:
        """Return when the cooldown is over; None where none has begun."""
        return None if state.alert_ms is None else state.alert_ms + self.written

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Name the alert that began the cooldown."""
        alerts = earlier.since(fired.time_ms - self.written + 1)
        if alerts:
            latest = max(alerts, key=lambda alert: alert["event_time"])
            ends = exact_time_text(latest["event_time"] + self.written)
            alert = f"alert {latest['alert_id']} at {exact_time_text(latest['event_time'])}{earlier.origin}"
            yield f"cooldown of {format_duration(self.written)} until {ends}, because of {alert}"

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Say how many alerts there are in which time."""
        per = f" per {' and '.join(group_by)}" if group_by else ""
        yield f"at most one alert{per} in {format_duration(self.written)}"
