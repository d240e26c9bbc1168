"""Makes explanations: finds the event and the rule as it was, and puts together what the other modules find."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from buckets.errors import BucketsError
from buckets.expressions.certainty import Value
from buckets.history import explanation_obstacle as obstacle
from buckets.history.archive import BATCH, FAULT, POSITION, SOURCE
from buckets.history.explanation import EventThen, Explanation, Outcome, Part, Reason, Recorded, RuleThen
from buckets.history.explanation_alerts import as_arrivals
from buckets.history.explanation_arrivals import Arrivals
from buckets.history.explanation_condition import KnownValues, explain_condition, explain_test
from buckets.history.explanation_key import KeyHistory, Target, find_group, follow_key
from buckets.history.explanation_past import Past
from buckets.history.explanation_policy import FiredAt, fired_before, held_by, in_share, moment, not_for_alerts
from buckets.history.explanation_recorded import RecordedResult, find_recorded, recorded_alert
from buckets.history.explanation_results import Row, sql_moment, sql_text
from buckets.history.explanation_value import PlainValue
from buckets.history.explanation_window import Computation, Found, computations, explain_window
from buckets.lists.lists import ListsAt
from buckets.outputs.columns import ALERTS
from buckets.rules.filter import needed_fields
from buckets.rules.rule import Rule
from buckets.rules.warmth import Warm, rules_warmth


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
        target = self._of_alert(row)
        rule = self._rule(target, row["rule_id"])
        assert rule is not None
        if rule.on == "alerts":
            target = self._raised_by(rule, target, _event(row)["alert_id"])
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
        arrivals = self._arrivals_of(event_id, at_ms)
        if arrivals is None:
            return self._dead_letter(event_id)
        target = Target(arrivals.take(np.array([0])), "events")
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

    def _arrivals_of(self, event_id: str, at_ms: int | None) -> Arrivals | None:
        """The arrivals of an event; None where it only came as what is no event."""
        schema = self.past.terms(self.past.recorded.cuts[-1].batch_id).event_schema
        tests = [f'"{schema.event_id}" = {sql_text(event_id)}']
        tests += [] if at_ms is None else [f'"{schema.event_time.field}" = {sql_moment(at_ms)}']
        arrivals = self.past.events(schema, tests)
        times_ms = sorted(set(arrivals.times_ms.tolist()))
        if len(times_ms) > 1:
            some = ", ".join(moment(each) for each in times_ms[:3])
            message = f"{len(times_ms)} events have the id {event_id!r}, at {some}; say which with --at"
            raise BucketsError(message)
        if len(arrivals):
            return arrivals
        if at_ms is not None or not self.past.faults_of(event_id):
            raise BucketsError(self._not_found(event_id, at_ms))
        return None

    def _not_found(self, event_id: str, at_ms: int | None) -> str:
        cuts, before = self.past.recorded.cuts, self.past.recorded.before
        when = "" if at_ms is None else f" at {moment(at_ms)}"
        since = f", which begins with batch {cuts[0].batch_id}" if before is not None else ""
        hint = "; it may have come before that" if before is not None else ""
        return f"event {event_id!r}{when} is not in the archive {self.past.archive.folder}{since}{hint}; check the id"

    def _dead_letter(self, event_id: str) -> Explanation:
        row = self.past.faults_of(event_id)[0]
        where = f"{row[SOURCE]}:{row[POSITION]}, batch {row[BATCH]}"
        reason = Reason("dead letter", f"a row that holds {event_id} was a dead letter ({where}): {row[FAULT]}")
        return Explanation("not evaluated", None, None, None, {}, (reason,), (), "", None, None, (), "", ())

    def _of_alert(self, row: Row) -> Target:
        """The event of an alert."""
        event = (row["event_id"], row["event_time"])
        schema = self.past.terms(self.past.recorded.cuts[-1].batch_id).event_schema
        tests = [f'"{schema.event_id}" = {sql_text(event[0])}', f'"{schema.event_time.field}" = {sql_moment(event[1])}']
        arrivals = self.past.events(schema, tests)
        if not len(arrivals):
            raise BucketsError(self._not_found(*event))
        origins = [origin[::2] for origin in arrivals.origins]
        mine = (row["source"], row["position"])
        return Target(arrivals.take(np.array([origins.index(mine) if mine in origins else 0])), "events")

    def _raised_by(self, rule: Rule, target: Target, alert_id: str) -> Target:
        """The alert that raised one of a rule over alerts."""
        found = self.past.results.alert(alert_id)
        alerts = None if found is None else as_arrivals(self.past, target.batch_id, [found[1]])
        if alerts is None or not len(alerts):
            message = (
                f"rule {rule.rule_id!r} counts alerts, and alert {alert_id!r}, which raised this one, is not found"
            )
            raise BucketsError(message)
        return Target(alerts, "alerts")

    def _rule(self, target: Target, rule_id: str) -> Rule | None:
        rules = self.past.rule_set(target.batch_id).rules
        return next((rule for rule in rules if rule.rule_id == rule_id and rule.state != "DELETE"), None)

    def _not_evaluated(self, rule: Rule | None, target: Target, reasons: list[Reason], came: int) -> Explanation:
        return Explanation(
            outcome="not evaluated",
            alert_id=None,
            rule=None if rule is None else self._rule_then(rule, target),
            event=_event_then(target, came),
            key={} if rule is None else _key(rule, target),
            reasons=tuple(reasons),
            policy=(),
            warmth="" if rule is None else self._warmth(rule, target),
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
        past, rule_set = self.past, self.past.rule_set(target.batch_id)
        reasons = [*obstacle.of_state(rule, target), *obstacle.of_event(rule, rule_set, target)]
        if not reasons:
            reasons = list(obstacle.of_filter(past, rule, target))
        if reasons:
            return self._not_evaluated(rule, target, reasons, came)
        wanted = computations(rule)
        histories = self._histories(rule, target, wanted)
        reasons = [reason for history in histories.values() for reason in obstacle.of_key(past, history, target)]
        for each in wanted:
            reasons += obstacle.of_patience(rule, each, histories[frozenset(each.fields)], target)
        reset_ms = self._reset_ms(rule, target, wanted[0]) if rule.reset_on_alert else None
        if reset_ms is not None and target.time_ms <= reset_ms:
            reasons.append(Reason("reset", f"an alert at {moment(reset_ms)} had reset the rule for this key"))
        if reasons:
            return self._not_evaluated(rule, target, list(dict.fromkeys(reasons)), came)
        if result is None:
            from_ms = min(each.start_ms(target.time_ms) for each in wanted)
            result = find_recorded(past, rule, target, event, list(histories.values()), from_ms)
        recorded = {} if result is None else result.features
        found = [
            explain_window(
                past, rule, each, histories[frozenset(each.fields)], recorded.get(each.name), reset_ms, self.most
            )
            for each in wanted
        ]
        condition = self._condition(rule, target, found)
        outcome = _outcome(result, condition)
        warm = None if result is None else all(each.warm for each in recorded.values())
        policy, held = self._policy(rule, target, outcome, warm)
        incomplete = self._before_archive(found)
        return Explanation(
            outcome=outcome,
            alert_id=None if result is None else result.row.get("alert_id"),
            rule=self._rule_then(rule, target),
            event=_event_then(target, came),
            key=_key(rule, target),
            reasons=tuple(held),
            policy=tuple(policy),
            warmth=self._warmth(rule, target),
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
        """The keys of the event in the groups of a rule, by their fields; first that of the rule's own key."""
        histories: dict[frozenset[str], KeyHistory] = {}
        rule_set, schema = self.past.rule_set(target.batch_id), target.arrivals.schema
        for fields, where in rule.groupings():
            group = find_group(rule_set, rule, fields, where)
            assert group is not None
            mine = [each for each in wanted if frozenset(each.fields) == frozenset(fields)]
            names = {each.of for each in mine if each.of is not None}
            names = names.union(*(needed_fields(each.where, schema) for each in mine))
            from_ms = min((each.start_ms(target.time_ms) for each in mine), default=target.time_ms)
            histories[frozenset(fields)] = follow_key(self.past, target, group, from_ms, names)
        return histories

    def _reset_ms(self, rule: Rule, target: Target, computed: Computation) -> int | None:
        """The latest event that had reset a rule for a key, as far back as its window reaches."""
        fired = self._fired_at(rule, target, warm=True)
        rows = fired_before(self.past, fired, computed.start_ms(target.time_ms))
        return max((row["event_time"] for row in rows), default=None)

    def _fired_at(self, rule: Rule, target: Target, warm: bool) -> FiredAt:
        key = _key(rule, target)
        number = target.number if target.on == "events" else self.past_number(target)
        return FiredAt(rule, key, json.dumps(key, ensure_ascii=False), target.time_ms, number, warm)

    def past_number(self, target: Target) -> int:
        """The number of the arrival whose alert a target is."""
        from buckets.history.explanation_alerts import RANKS

        return target.number // RANKS

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

    def _rule_then(self, rule: Rule, target: Target) -> RuleThen:
        cut = self.past.cuts[target.batch_id]
        last = self.past.versions.latest_change(rule.rule_id, cut.ruleset_version)
        made, change = (None, None) if last is None else last
        return RuleThen(
            rule_id=rule.rule_id,
            version=rule.version,
            state=rule.state,
            sentence=rule.sentence(),
            written=rule.model_dump(by_alias=True, mode="json"),
            ruleset_version=cut.ruleset_version,
            author="" if change is None else change.author,
            reason="" if change is None else change.reason,
            made_ms=None if made is None else made.made_ms,
            lists={name: version for name, version in cut.lists.items() if name in rule.lists},
        )

    def _warmth(self, rule: Rule, target: Target) -> str:
        """Since when the windows of a rule are complete, seen from an event."""
        rule_set = self.past.rule_set(target.batch_id)
        if rule.on == "alerts" and rule_set.over_alerts is not None:
            rule_set = rule_set.over_alerts
        if rule.on == "alerts":
            return ""
        warmth = rules_warmth(rule_set, (), 0).get(rule.rule_id)
        if warmth is None or not warmth.warm:
            return "the rule keeps nothing"
        return _warm_words(warmth.warm, target.time_ms)


def _warm_words(warm: Sequence[Warm], time_ms: int) -> str:
    for each in warm:
        begun = each.from_ms is None or each.from_ms <= time_ms
        if begun and (each.until_ms is None or time_ms < each.until_ms):
            return (
                "complete since the first event" if each.from_ms is None else f"complete from {moment(each.from_ms)} on"
            )
    ahead = next((each.from_ms for each in warm if each.from_ms is not None and each.from_ms > time_ms), None)
    return "not complete" if ahead is None else f"not complete: only from {moment(ahead)} on"


def _event(row: Row) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(row["event"]) if isinstance(row["event"], str) else row["event"]
    return event


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
