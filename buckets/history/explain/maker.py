"""Makes explanations: finds the event and the rule as it was, and puts together what the other modules find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from buckets.aggregates.plain import PlainValue
from buckets.archive.archive import BATCH, FAULT, POSITION, SOURCE
from buckets.errors import BucketsError
from buckets.expressions.certainty import Value
from buckets.history.explain import condition
from buckets.history.explain.condition import Computation, KnownValues, computations, explain_condition, explain_test
from buckets.history.explain.explanation import ConditionPart, Explanation, Reason, RecordedValue, RuleOutcome
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import RANKS, KeyHistory, Target, as_arrivals, find_group, follow_key, score_again
from buckets.history.explain.policy import (
    FiredThen,
    RecordedResult,
    alert_that_raised,
    arrivals_of_event,
    event_of_alert,
    event_then,
    find_recorded,
    fired_before,
    holding_reasons,
    in_share,
    not_for_alerts,
    recorded_alert,
    rule_then,
    warmth_of,
)
from buckets.history.explain.window import Recomputed, explain_window, outside_of_group
from buckets.lists.index import ListsAt
from buckets.moment import TimeRange, exact_time_text
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Row, Selection
from buckets.rules.group import Group, kernel_limit
from buckets.rules.rule import Rule, extra_digits


@dataclass(frozen=True)
class Explainer:
    """Explains alerts, and why there was none."""

    past: Past  # the past of a job
    most: int | None = None  # how many events of a window are shown; None for all

    def alert(self, alert_id: str) -> Explanation:
        """Explain an alert.

        Raises:
            BucketsError: there is none with this id, or its event is not in the archive.
        """
        recorded = self.past.alert(alert_id)
        if recorded is None:
            message = f"there is no alert {alert_id!r} in {self.past.folder}; `buckets alerts DIR` shows some"
            raise BucketsError(message)
        output, row = recorded
        target = event_of_alert(self.past, row)
        then = self.past.as_of(target.batch_id)
        if then is not self.past:
            return replace(self, past=then).alert(alert_id)
        rule = self._rule(target, row["rule_id"])
        assert rule is not None
        if rule.on == "alerts":
            target = alert_that_raised(self.past, rule, target, row)
        return self._explain(_Asked(rule, target, (row["event_id"], row["event_time"]), recorded_alert(output, row)))

    def event(self, event_id: str, rule_id: str, at_ms: int | None = None) -> Explanation:
        """Explain a rule at an event, whether it fired or not.

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
            return self._not_evaluated(
                None, target, [condition.missing_rule(self.past, rule_id, target)], len(arrivals)
            )
        name = (event_id, target.time_ms)
        if rule.on == "events":
            return self._explain(_Asked(rule, target, name, came=len(arrivals)))
        wanted = Selection({"event_id": [event_id]}, TimeRange(target.time_ms, target.time_ms + 1))
        alerts = as_arrivals(self.past, target.batch_id, self.past.results(ALERTS, wanted))
        if not len(alerts):
            reason = Reason("no alert", "the event raised no alert, and the rule counts alerts")
            return self._not_evaluated(rule, target, [reason], len(arrivals))
        more = f"the event raised {len(alerts)} alerts; this is of the first" if len(alerts) > 1 else ""
        first = Target(alerts.take(np.array([0])), "alerts")
        return self._explain(_Asked(rule, first, name, None, len(arrivals), (more,) if more else ()))

    def _dead_letter(self, event_id: str) -> Explanation:
        row = self.past.faults_of(event_id)[0]
        where = f"{row[SOURCE]}:{row[POSITION]}, batch {row[BATCH]}"
        reason = Reason("dead letter", f"a row that holds {event_id} was a dead letter ({where}): {row[FAULT]}")
        return Explanation("not evaluated", reasons=(reason,))

    def _rule(self, target: Target, rule_id: str) -> Rule | None:
        rules = self.past.rule_set(target.batch_id).rules
        return next((rule for rule in rules if rule.rule_id == rule_id and rule.state != "DELETE"), None)

    def _not_evaluated(self, rule: Rule | None, target: Target, reasons: list[Reason], came: int) -> Explanation:
        explanation = Explanation("not evaluated", event=event_then(target, came), reasons=tuple(reasons))
        return explanation if rule is None else self._with_rule(explanation, rule, target)

    def _with_rule(self, explanation: Explanation, rule: Rule, target: Target) -> Explanation:
        key, warmth = _key(rule, target), warmth_of(self.past, rule, target)
        return replace(explanation, rule=rule_then(self.past, rule, target), key=key, warmth=warmth)

    def _explain(self, asked: "_Asked") -> Explanation:
        """Explain a rule at an event or an alert."""
        past, rule, target = self.past, asked.rule, asked.target
        reasons = [*condition.of_state(rule, target), *condition.of_event(past, rule, target)]
        if not reasons:
            reasons = list(condition.of_filter(past, rule, target))
        if reasons:
            return self._not_evaluated(rule, target, reasons, asked.came)
        wanted = computations(rule)
        histories = self._histories(rule, target, wanted)
        reasons = [reason for history in histories.values() for reason in condition.of_key(past, history, target)]
        reasons = reasons or list(condition.of_topic(target))
        for computed in wanted:
            if frozenset(computed.fields) in histories:
                reasons += condition.of_patience(rule, computed, histories[frozenset(computed.fields)], target)
        reset_ms = self._reset_ms(rule, target, wanted[0]) if rule.reset_on_alert else None
        if reset_ms is not None and target.time_ms <= reset_ms:
            reasons.append(Reason("reset", f"an alert at {exact_time_text(reset_ms)} had reset the rule for this key"))
        if reasons:
            return self._not_evaluated(rule, target, list(dict.fromkeys(reasons)), asked.came)
        return self._evaluated(asked, histories, reset_ms)

    def _evaluated(
        self, asked: "_Asked", histories: Mapping[frozenset[str], KeyHistory], reset_ms: int | None
    ) -> Explanation:
        """Explain a rule at an event or an alert at which it was evaluated."""
        past, rule, target, result = self.past, asked.rule, asked.target, asked.result
        wanted = computations(rule)
        if result is None:
            from_ms = min(computed.start_ms(target.time_ms) for computed in wanted)
            result = find_recorded(past, rule, target, asked.event, list(histories.values()), from_ms)
        recorded = {} if result is None else result.features
        features = []
        for computed in wanted:
            history, value = histories.get(frozenset(computed.fields)), recorded.get(computed.name)
            features.append(
                outside_of_group(computed, target, value)
                if history is None
                else explain_window(past, rule, computed, history, value, reset_ms, self.most)
            )
        condition = self._condition(rule, target, features)
        outcome = _outcome(result, condition)
        warm = None if result is None else all(value.warm for value in recorded.values())
        policy, held = self._policy(rule, target, outcome, warm)
        if result is not None and outcome == "held back" and not held:
            by = result.row["held_by"]
            held = [Reason(by, f"held back by its policy ({by}); by what is not in the results any more")]
        incomplete = self._before_archive()
        explanation = Explanation(
            outcome=outcome,
            alert_id=None if result is None else result.row.get("alert_id"),
            event=event_then(target, asked.came),
            reasons=tuple(held),
            policy=tuple(policy),
            warm=warm,
            condition=condition,
            features=tuple(recomputed.feature for recomputed in features),
            origin="nothing is recorded of it" if result is None else result.origin,
            notes=(*asked.notes, *incomplete),
        )
        return self._with_rule(explanation, rule, target)

    def _before_archive(self) -> list[str]:
        if self.past.recorded.before is None:
            return []
        first = self.past.recorded.cuts[0].batch_id
        return [f"events of batches before {first} are not in the archive"]

    def _histories(self, rule: Rule, target: Target, wanted: list[Computation]) -> dict[frozenset[str], KeyHistory]:
        """Follow the keys of the event in the groups of a rule, by their fields; first that of the rule's own key.

        Groups to which the event does not belong, because a field is null, are left out.
        """
        histories: dict[frozenset[str], KeyHistory] = {}
        rule_set = self.past.rule_set(target.batch_id)
        for fields, where in rule.groupings():
            if any(target.value(field) is None for field in fields):
                continue
            group = find_group(rule_set, rule, fields, where)
            assert group is not None
            starts_ms = (
                computed.start_ms(target.time_ms)
                for computed in wanted
                if frozenset(computed.fields) == frozenset(fields)
            )
            from_ms = min(starts_ms, default=target.time_ms)
            histories[frozenset(fields)] = follow_key(self.past, target, group, from_ms)
        return histories

    def _reset_ms(self, rule: Rule, target: Target, computed: Computation) -> int | None:
        """Return when a rule was last reset for a key, as far back as its window reaches; None where it was not."""
        fired = self._fired_at(rule, target, warm=True)
        rows = fired_before(self.past, fired, computed.start_ms(target.time_ms))
        return max((row["event_time"] for row in rows), default=None)

    def _fired_at(self, rule: Rule, target: Target, warm: bool) -> FiredThen:
        key = _key(rule, target)
        number = target.number if target.on == "events" else target.number // RANKS
        fields, where = rule.groupings()[0]
        home = find_group(self.past.rule_set(target.batch_id), rule, fields, where)
        assert home is not None
        if self._is_remembered_as_filled(rule, target, home):
            return FiredThen(rule, key, target.time_ms, number, warm, 0, self._filled_alerts(rule, target, home))
        since = self.past.first_batch_of(home.generation)
        return FiredThen(rule, key, target.time_ms, number, warm, since)

    def _is_remembered_as_filled(self, rule: Rule, target: Target, home: Group) -> bool:
        """Return whether what the job remembers of a rule and key came with the history that was filled in."""
        is_here = target.on == "events" and len(rule.groupings()) == 1
        return is_here and self.past.fill_of(home, target.batch_id) is not None

    def _filled_alerts(self, rule: Rule, target: Target, home: Group) -> list[Row]:
        """Return the alerts of a rule and key with the history that was filled in; most were never put out."""
        if not rule.depends_on_alerts:
            return []
        outputs = score_again(self.past, target.arrivals, [home], None, ALERT_OUTPUTS)
        alerts = [row | {"output": output} for output, rows in outputs.items() for row in rows]
        return [row for row in alerts if row["rule_id"] == rule.rule_id]

    def _policy(
        self, rule: Rule, target: Target, outcome: RuleOutcome, warm: bool | None
    ) -> tuple[list[Reason], list[Reason]]:
        """Return what the policy of the rule says, and what of that kept the event from an alert."""
        if outcome == "did not fire":
            return [], []
        key = _key(rule, target)
        held = list(holding_reasons(self.past, self._fired_at(rule, target, bool(warm))))
        elsewhere = list(not_for_alerts(rule, key))
        policy = [*held, *elsewhere, *in_share(rule, key)]
        if outcome == "held back":
            return policy, held[:1]
        return policy, elsewhere if outcome == "shadow alert" else []

    def _condition(self, rule: Rule, target: Target, features: Sequence[Recomputed]) -> ConditionPart:
        """Explain the condition with the values that decided: the recorded ones where those are not exact."""
        # All but an average is compared as it is shown.
        limit = kernel_limit(rule)
        if limit is not None and (rule.limit is not None or extra_digits(rule)):
            (only,) = features
            decided = _decided(only)
            if decided.exact is not None:
                return explain_test(only.feature.name, decided, limit)
        known = condition.known_fields(self.past, rule.when, target)
        values = dict(known.values) | {recomputed.feature.name: _value_of(recomputed) for recomputed in features}
        shown = [recomputed.feature for recomputed in features]
        why_null = {feature.name: feature.why_null for feature in shown if feature.why_null is not None}
        lists = ListsAt(self.past.lists(target.batch_id), np.array([target.time_ms]))
        return explain_condition(rule.when, KnownValues(values, why_null, lists))


@dataclass(frozen=True)
class _Asked:
    """What is explained."""

    rule: Rule  # the rule
    target: Target  # the event or the alert
    event: tuple[str, int]  # id and time of the event, also where an alert is explained
    result: RecordedResult | None = None  # what is recorded of it, where that is known already
    came: int = 1  # how often the event has arrived
    notes: tuple[str, ...] = ()  # what is to be said of it besides


def _key(rule: Rule, target: Target) -> dict[str, Any]:
    """Return the key of the rule, as results show it."""
    return {field: target.value(field) for field in rule.group_by}


def _outcome(result: RecordedResult | None, condition: ConditionPart) -> RuleOutcome:
    if result is not None:
        return result.outcome
    return "alert" if condition.truth == "true" else "did not fire"


def _decided(recomputed: Recomputed) -> PlainValue:
    """Return the value that the kernel has compared with a limit."""
    recorded = recomputed.feature.recorded
    if recorded is None or recorded.exact or not isinstance(recorded.value, str):
        return recomputed.plain
    value = Decimal(recorded.value)
    return PlainValue(Fraction(value), value)


def _value_of(recomputed: Recomputed) -> Value:
    """Return a feature as a condition takes it."""
    recorded: RecordedValue | None = recomputed.feature.recorded
    if recorded is not None and not recorded.exact:
        return _known(recorded.value)
    return recomputed.plain.shown


def _known(value: str | bool | None) -> Value:
    return Decimal(value) if isinstance(value, str) else value
