"""Makes explanations: finds the event and the rule as it was, and puts together what the other modules find."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from buckets.archive.archive import BATCH, FAULT, POSITION, SOURCE
from buckets.errors import BucketsError
from buckets.expressions.certainty import Value
from buckets.history.explain import obstacle
from buckets.history.explain.alerts import RANKS, as_arrivals
from buckets.history.explain.condition import KnownValues, explain_condition, explain_test
from buckets.history.explain.explanation import EventThen, Explanation, Outcome, Part, Reason, Recorded
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import KeyHistory, Target, find_group, follow_key
from buckets.history.explain.policy import FiredAt, fired_before, held_by, in_share, not_for_alerts
from buckets.history.explain.recorded import RecordedResult, find_recorded, recorded_alert
from buckets.history.explain.results import OF_ALERTS, Row, sql_moment, sql_text
from buckets.history.explain.rule import rule_then, warmth_of
from buckets.history.explain.scoring import score_again
from buckets.history.explain.subject import alert_that_raised, arrivals_of_event, event_of_alert
from buckets.history.explain.value import PlainValue
from buckets.history.explain.window import Computation, Found, computations, explain_window, outside_of_group
from buckets.lists.lists import ListsAt
from buckets.moment import exact_time_text
from buckets.outputs.columns import ALERTS
from buckets.rules.rule import Rule
from buckets.rules.rule_set import Group


@dataclass(frozen=True)
class Explainer:
    """Explains alerts, and why there was none.

    Attributes:
        past: the past of a job.
        most: how many events of a window are shown; None for all.
    """

    past: Past
    most: int | None = None

    def alert(self, alert_id: str) -> Explanation:
        """Explain an alert.

        Raises:
            BucketsError: there is none with this id, or its event is not in the archive.
        """
        found = self.past.results.alert(alert_id)
        if found is None:
            message = f"there is no alert {alert_id!r} in {self.past.results.folder}; `buckets alerts DIR` shows some"
            raise BucketsError(message)
        output, row = found
        target = event_of_alert(self.past, row)
        then = self.past.as_of(target.batch_id)
        if then is not self.past:
            return replace(self, past=then).alert(alert_id)
        rule = self._rule(target, row["rule_id"])
        assert rule is not None
        if rule.on == "alerts":
            target = alert_that_raised(self.past, rule, target, row)
        return self._explain(rule, target, (row["event_id"], row["event_time"]), recorded_alert(output, row))

    def event(self, event_id: str, rule_id: str, at_ms: int | None = None) -> Explanation:
        """Explain a rule at an event, whether it fired or not.

        Args:
            event_id: the event.
            rule_id: the rule.
            at_ms: when it happened, where several events have the id.

        Raises:
            BucketsError: the archive has no such event, or several.
        """
        arrivals = arrivals_of_event(self.past, event_id, at_ms)
        if arrivals is None:
            return self._dead_letter(event_id)
        target = Target(arrivals.take(np.array([0])), "events")
        then = self.past.as_of(target.batch_id)
        if then is not self.past:
            return replace(self, past=then).event(event_id, rule_id, at_ms)
        rule = self._rule(target, rule_id)
        if rule is None:
            return self._not_evaluated(None, target, [obstacle.missing_rule(self.past, rule_id, target)], len(arrivals))
        name = (event_id, target.time_ms)
        if rule.on == "events":
            return self._explain(rule, target, name, None, len(arrivals))
        tests = [f"event_id = {sql_text(event_id)}", f"event_time = {sql_moment(target.time_ms)}"]
        alerts = as_arrivals(self.past, target.batch_id, self.past.results.rows(ALERTS, tests))
        if not len(alerts):
            reason = Reason("no alert", "the event raised no alert, and the rule counts alerts")
            return self._not_evaluated(rule, target, [reason], len(arrivals))
        more = f"the event raised {len(alerts)} alerts; this is of the first" if len(alerts) > 1 else ""
        first = Target(alerts.take(np.array([0])), "alerts")
        return self._explain(rule, first, name, None, len(arrivals), (more,) if more else ())

    def _dead_letter(self, event_id: str) -> Explanation:
        row = self.past.faults_of(event_id)[0]
        where = f"{row[SOURCE]}:{row[POSITION]}, batch {row[BATCH]}"
        reason = Reason("dead letter", f"a row that holds {event_id} was a dead letter ({where}): {row[FAULT]}")
        return Explanation("not evaluated", None, None, None, {}, (reason,), (), "", None, None, (), "", ())

    def _rule(self, target: Target, rule_id: str) -> Rule | None:
        rules = self.past.rule_set(target.batch_id).rules
        return next((rule for rule in rules if rule.rule_id == rule_id and rule.state != "DELETE"), None)

    def _not_evaluated(self, rule: Rule | None, target: Target, reasons: list[Reason], came: int) -> Explanation:
        return Explanation(
            outcome="not evaluated",
            alert_id=None,
            rule=None if rule is None else rule_then(self.past, rule, target),
            event=_event_then(target, came),
            key={} if rule is None else _key(rule, target),
            reasons=tuple(reasons),
            policy=(),
            warmth="" if rule is None else warmth_of(self.past, rule, target),
            warm=None,
            condition=None,
            features=(),
            origin="",
        )

    def _explain(
        self,
        rule: Rule,
        target: Target,
        event: tuple[str, int],
        result: RecordedResult | None,
        came: int = 1,
        notes: tuple[str, ...] = (),
    ) -> Explanation:
        """Explain a rule at an event or an alert."""
        past = self.past
        reasons = [*obstacle.of_state(rule, target), *obstacle.of_event(past, rule, target)]
        if not reasons:
            reasons = list(obstacle.of_filter(past, rule, target))
        if reasons:
            return self._not_evaluated(rule, target, reasons, came)
        wanted = computations(rule)
        histories = self._histories(rule, target, wanted)
        reasons = [reason for history in histories.values() for reason in obstacle.of_key(past, history, target)]
        for each in wanted:
            if frozenset(each.fields) in histories:
                reasons += obstacle.of_patience(rule, each, histories[frozenset(each.fields)], target)
        reset_ms = self._reset_ms(rule, target, wanted[0]) if rule.reset_on_alert else None
        if reset_ms is not None and target.time_ms <= reset_ms:
            reasons.append(Reason("reset", f"an alert at {exact_time_text(reset_ms)} had reset the rule for this key"))
        if reasons:
            return self._not_evaluated(rule, target, list(dict.fromkeys(reasons)), came)
        return self._evaluated(rule, target, event, result, histories, reset_ms, came, notes)

    def _evaluated(
        self,
        rule: Rule,
        target: Target,
        event: tuple[str, int],
        result: RecordedResult | None,
        histories: Mapping[frozenset[str], KeyHistory],
        reset_ms: int | None,
        came: int,
        notes: tuple[str, ...],
    ) -> Explanation:
        """Explain a rule at an event or an alert at which it was evaluated."""
        past, wanted = self.past, computations(rule)
        if result is None:
            from_ms = min(each.start_ms(target.time_ms) for each in wanted)
            result = find_recorded(past, rule, target, event, list(histories.values()), from_ms)
        recorded = {} if result is None else result.features
        found = [
            explain_window(
                past, rule, each, histories[frozenset(each.fields)], recorded.get(each.name), reset_ms, self.most
            )
            if frozenset(each.fields) in histories
            else outside_of_group(each, target, recorded.get(each.name))
            for each in wanted
        ]
        condition = self._condition(rule, target, found)
        outcome = _outcome(result, condition)
        warm = None if result is None else all(each.warm for each in recorded.values())
        policy, held = self._policy(rule, target, outcome, warm)
        if result is not None and outcome == "held back" and not held:
            by = result.row["held_by"]
            held = [Reason(by, f"held back by its policy ({by}); by what is not in the results any more")]
        incomplete = self._before_archive(found)
        return Explanation(
            outcome=outcome,
            alert_id=None if result is None else result.row.get("alert_id"),
            rule=rule_then(self.past, rule, target),
            event=_event_then(target, came),
            key=_key(rule, target),
            reasons=tuple(held),
            policy=tuple(policy),
            warmth=warmth_of(self.past, rule, target),
            warm=warm,
            condition=condition,
            features=tuple(each.feature for each in found),
            origin="nothing is recorded of it" if result is None else result.origin,
            notes=(*notes, *incomplete),
        )

    def _before_archive(self, found: Sequence[Found]) -> list[str]:
        before = self.past.recorded.before
        if before is None:
            return []
        first = self.past.recorded.cuts[0].batch_id
        return [f"events of batches before {first}, of an earlier release, are not in the archive"] if found else []

    def _histories(self, rule: Rule, target: Target, wanted: list[Computation]) -> dict[frozenset[str], KeyHistory]:
        """The keys of the event in the groups of a rule, by their fields; first that of the rule's own key.

        Groups to which the event does not belong, because a field is null, are left out.
        """
        histories: dict[frozenset[str], KeyHistory] = {}
        rule_set = self.past.rule_set(target.batch_id)
        for fields, where in rule.groupings():
            if any(target.value(field) is None for field in fields):
                continue
            group = find_group(rule_set, rule, fields, where)
            assert group is not None
            mine = [each for each in wanted if frozenset(each.fields) == frozenset(fields)]
            from_ms = min((each.start_ms(target.time_ms) for each in mine), default=target.time_ms)
            histories[frozenset(fields)] = follow_key(self.past, target, group, from_ms)
        return histories

    def _reset_ms(self, rule: Rule, target: Target, computed: Computation) -> int | None:
        """The latest event that had reset a rule for a key, as far back as its window reaches."""
        fired = self._fired_at(rule, target, warm=True)
        rows = fired_before(self.past, fired, computed.start_ms(target.time_ms))
        return max((row["event_time"] for row in rows), default=None)

    def _fired_at(self, rule: Rule, target: Target, warm: bool) -> FiredAt:
        key = _key(rule, target)
        number = target.number if target.on == "events" else target.number // RANKS
        text = json.dumps(key, ensure_ascii=False)
        fields, where = rule.groupings()[0]
        home = find_group(self.past.rule_set(target.batch_id), rule, fields, where)
        assert home is not None
        if self._is_remembered_as_filled(rule, target, home):
            return FiredAt(rule, key, text, target.time_ms, number, warm, 0, self._filled_alerts(rule, target, home))
        since = self.past.first_batch_of(home.generation)
        return FiredAt(rule, key, text, target.time_ms, number, warm, since)

    def _is_remembered_as_filled(self, rule: Rule, target: Target, home: Group) -> bool:
        """Whether what the job remembers of a rule and key came with the history that was filled in."""
        is_here = target.on == "events" and len(rule.groupings()) == 1
        return is_here and self.past.fill_of(home, target.batch_id) is not None

    def _filled_alerts(self, rule: Rule, target: Target, home: Group) -> list[Row]:
        """The alerts of a rule and key with the history that was filled in, most of which were never put out."""
        if rule.cooldown is None and not rule.reset_on_alert:
            return []
        found = score_again(self.past, target.arrivals, [home], None, OF_ALERTS)
        alerts = [row | {"output": output} for output, rows in found.items() for row in rows]
        return [row for row in alerts if row["rule_id"] == rule.rule_id]

    def _policy(
        self, rule: Rule, target: Target, outcome: Outcome, warm: bool | None
    ) -> tuple[list[Reason], list[Reason]]:
        """What the policy of the rule says, and what of that kept the event from an alert."""
        if outcome == "did not fire":
            return [], []
        key = _key(rule, target)
        held = list(held_by(self.past, self._fired_at(rule, target, bool(warm))))
        elsewhere = list(not_for_alerts(rule, key))
        policy = [*held, *elsewhere, *in_share(rule, key)]
        if outcome == "held back":
            return policy, held[:1]
        return policy, elsewhere if outcome == "shadow alert" else []

    def _condition(self, rule: Rule, target: Target, found: Sequence[Found]) -> Part:
        """The condition with the values that decided: the recorded ones where those are not exact."""
        if rule.limit is not None:
            (only,) = found
            return explain_test("value", _decided(only), rule.limit.operator, rule.limit.value)
        assert rule.when is not None
        known = obstacle.known_fields(self.past, rule.when, target)
        values: dict[str, Value] = {**known.values, **{each.feature.name: _value_of(each) for each in found}}
        why_null = {each.feature.name: each.feature.why_null for each in found if each.feature.why_null is not None}
        lists = ListsAt(self.past.lists(target.batch_id), np.array([target.time_ms]))
        return explain_condition(rule.when, KnownValues(values, why_null, lists))


def _key(rule: Rule, target: Target) -> dict[str, Any]:
    """The key of the rule, as results show it."""
    return {field: target.value(field) for field in rule.group_by}


def _event_then(target: Target, came: int) -> EventThen:
    arrivals = target.arrivals
    source, _, position = arrivals.origins[0]
    return EventThen(
        event_id=target.name,
        time_ms=target.time_ms,
        fields=arrivals.event(0),
        batch_id=target.batch_id,
        source=source,
        position=position,
        ingested_ms=arrivals.ingested_ms[0].as_py(),
        came=came,
    )


def _outcome(result: RecordedResult | None, condition: Part) -> Outcome:
    if result is not None:
        return result.outcome
    return "alert" if condition.truth == "true" else "did not fire"


def _decided(found: Found) -> PlainValue:
    """The value of a rule of one aggregate that was compared with the limit."""
    recorded = found.feature.recorded
    if recorded is None or recorded.exact or not isinstance(recorded.value, str):
        return found.plain
    value = Decimal(recorded.value)
    return PlainValue(Fraction(value), value)


def _value_of(found: Found) -> Value:
    """A feature as a condition takes it."""
    recorded: Recorded | None = found.feature.recorded
    if recorded is not None and not recorded.exact:
        return _known(recorded.value)
    return found.plain.shown


def _known(value: str | bool | None) -> Value:
    return Decimal(value) if isinstance(value, str) else value
