"""Makes explanations: finds the event and the rule at that time, and combines the findings of the other modules."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np

from buckets.aggregates.plain import PlainValue
from buckets.archive.arrived_rows import BATCH, FAULT, POSITION, SOURCE
from buckets.errors import BucketsError
from buckets.expressions.certainty import Value, possible_number
from buckets.history.explain import condition
from buckets.history.explain.condition import KnownValues, explain_condition, explain_test
from buckets.history.explain.explanation import ConditionPart, Explanation, Reason, RuleOutcome
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import KeyHistory, Target, as_arrivals, find_group, follow_key
from buckets.history.explain.recorded import (
    FiredBefore,
    RecordedResult,
    alert_that_raised,
    arrivals_of_event,
    event_then,
    find_recorded,
    key_of,
    policy_reasons,
    recorded_alert,
    rule_then,
    target_of_alert,
    warmth_of,
)
from buckets.history.explain.window import Recomputed, explain_window, outside_of_group
from buckets.lists.index import ListsAt
from buckets.moment import TimeRange, exact_time_text
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import Selection
from buckets.rules.condition import SqlFilter, SqlScore, score_words, whole_score
from buckets.rules.group import kernel_limit
from buckets.rules.role import asked_field
from buckets.rules.rule import Rule, extra_digits

_Histories = dict[frozenset[str], KeyHistory]
"""By the fields of a rule's groups, the arrivals of the event's key; without groups that the event cannot have."""


@dataclass(frozen=True)
class Explainer:
    """Explains alerts and missing alerts."""

    past: Past  # the past of a job
    most: int | None = None  # how many events of a window are shown; None for all

    def alert(self, alert_id: str) -> Explanation:
        """Explain an alert."""
        recorded = self.past.alert(alert_id)
        if recorded is None:
            message = f"there is no alert {alert_id!r} in {self.past.folder}; `buckets alerts DIR` shows some"
            raise BucketsError(message)
        output, row = recorded
        target = target_of_alert(self.past, row)
        then = self.past.as_of(target.batch_id)
        if then is not self.past:
            return replace(self, past=then).alert(alert_id)
        rule = self._rule(target, row["rule_id"])
        assert rule is not None
        if rule.on == "alerts":
            target = alert_that_raised(self.past, rule, target, row)
        return self._explain(rule, target, 1, recorded_alert(output, row))

    def event(self, event_id: str, rule_id: str, at_ms: int | None = None) -> Explanation:
        """Explain a rule at an event, whether it fired or not."""
        arrivals = arrivals_of_event(self.past, event_id, at_ms)
        if arrivals is None:
            row = self.past.faults_of(event_id)[0]
            where = f"{row[SOURCE]}:{row[POSITION]}, batch {row[BATCH]}"
            sentence = f"a row that holds {event_id} was a dead letter ({where}): {row[FAULT]}"
            return Explanation("not evaluated", reasons=(Reason("dead letter", sentence),))
        target = Target(arrivals.take(np.array([0])), "events")
        then = self.past.as_of(target.batch_id)
        if then is not self.past:
            return replace(self, past=then).event(event_id, rule_id, at_ms)
        rule, came = self._rule(target, rule_id), len(arrivals)
        if rule is None:
            return self._not_evaluated(None, target, came, [condition.missing_rule(self.past, rule_id, target)])
        if rule.on == "events":
            return self._explain(rule, target, came)
        wanted = Selection({"event_id": [event_id]}, TimeRange(target.time_ms, target.time_ms + 1))
        alerts = as_arrivals(self.past, target.batch_id, self.past.results(ALERTS, wanted))
        if not len(alerts):
            reason = Reason("no alert", "the event raised no alert, and the rule counts alerts")
            return self._not_evaluated(rule, target, came, [reason])
        notes = (f"the event raised {len(alerts)} alerts; this is of the first",) if len(alerts) > 1 else ()
        return self._explain(rule, Target(alerts.take(np.array([0])), "alerts"), came, None, notes)

    def _rule(self, target: Target, rule_id: str) -> Rule | None:
        rules = self.past.rule_set(target.batch_id).evaluated
        return next((rule for rule in rules if rule.rule_id == rule_id and rule.state != "DELETE"), None)

    def _not_evaluated(self, rule: Rule | None, target: Target, came: int, reasons: Iterable[Reason]) -> Explanation:
        different = tuple(dict.fromkeys(reasons))
        explanation = Explanation("not evaluated", event=event_then(target, came), reasons=different)
        return explanation if rule is None else self._with_rule(explanation, rule, target)

    def _with_rule(self, explanation: Explanation, rule: Rule, target: Target) -> Explanation:
        then, warmth = rule_then(self.past, rule, target), warmth_of(self.past, rule, target)
        return replace(explanation, rule=then, key=key_of(rule, target), warmth=warmth)

    def _explain(
        self,
        rule: Rule,
        target: Target,
        came: int,
        result: RecordedResult | None = None,
        notes: tuple[str, ...] = (),
    ) -> Explanation:
        past = self.past
        reasons = [*condition.of_state(rule, target), *condition.of_event(past, rule, target)]
        reasons = reasons or list(condition.of_filter(past, rule, target))
        if reasons:
            return self._not_evaluated(rule, target, came, reasons)
        histories, earlier = self._histories(rule, target), FiredBefore(past, rule, target)
        reasons = [reason for history in histories.values() for reason in condition.of_key(past, history, target)]
        reasons = reasons or list(condition.of_topic(target))
        for named in rule.named_features():
            if frozenset(named.fields) in histories:
                reasons += condition.of_patience(rule, named, histories[frozenset(named.fields)], target)
        reset_ms: int | None = None
        if rule.reset_on_alert:
            # The last reset within its window.
            rows = earlier.fired(target.time_ms - rule.named_features()[0].feature.window.reach_ms)
            reset_ms = max((row["event_time"] for row in rows), default=None)
            if reset_ms is not None and target.time_ms <= reset_ms:
                had = f"an alert at {exact_time_text(reset_ms)} had reset the rule for this key"
                reasons.append(Reason("reset", had))
        if reasons:
            return self._not_evaluated(rule, target, came, reasons)
        if result is None:
            from_ms = target.time_ms - max((each.feature.window.reach_ms for each in rule.named_features()), default=0)
            result = find_recorded(past, rule, target, list(histories.values()), from_ms)
        if past.recorded.before is not None:
            notes = (*notes, f"events of batches before {past.recorded.cuts[0].batch_id} are not in the archive")
        recorded, features = {} if result is None else result.features, []
        for named in rule.named_features():
            history, value = histories.get(frozenset(named.fields)), recorded.get(named.name)
            features.append(
                outside_of_group(rule, named, target, value)
                if history is None
                else explain_window(past, rule, named, history, value, reset_ms, self.most)
            )
        asked = self._condition(rule, target, features)
        otherwise: RuleOutcome = "alert" if asked.truth == "true" else "did not fire"
        explanation = Explanation(
            outcome=otherwise if result is None else result.outcome,
            alert_id=None if result is None else result.row.get("alert_id"),
            event=event_then(target, came),
            warm=None if result is None else all(value.warm for value in recorded.values()),
            condition=asked,
            features=tuple(feature for feature, _ in features),
            origin="nothing is recorded of it" if result is None else result.origin,
            notes=notes,
        )
        if explanation.outcome != "did not fire":
            explanation = self._with_policy(explanation, result, earlier)
            explanation = replace(explanation, notes=(*notes, *self._score(rule, target, features)))
        return self._with_rule(explanation, rule, target)

    def _with_policy(
        self, explanation: Explanation, result: RecordedResult | None, earlier: FiredBefore
    ) -> Explanation:
        held, share, is_shadow = policy_reasons(earlier, bool(explanation.warm))
        reasons = share if explanation.outcome == "shadow alert" and is_shadow else []
        if explanation.outcome == "held back":
            reasons = held[:1]
            if result is not None and not held:
                by = result.row["held_by"]
                reasons = [Reason(by, f"held back by its policy ({by}); by what is not in the results any more")]
        return replace(explanation, reasons=tuple(reasons), policy=(*held, *share))

    def _histories(self, rule: Rule, target: Target) -> _Histories:
        """Return the histories of the event's keys in the groups of a rule, starting with the rule's own key."""
        histories: _Histories = {}
        rule_set = self.past.rule_set(target.batch_id)
        for fields, where in rule.groupings():
            if any(target.value(asked_field(field)) is None for field in fields):
                continue
            group = find_group(rule_set, rule, fields, where)
            assert group is not None
            here = [named for named in rule.named_features() if frozenset(named.fields) == frozenset(fields)]
            reach_ms = max((named.feature.window.reach_ms for named in here), default=0)
            histories[frozenset(fields)] = follow_key(self.past, target, group, target.time_ms - reach_ms)
        return histories

    def _condition(self, rule: Rule, target: Target, features: Sequence[Recomputed]) -> ConditionPart:
        """Explain the condition with the values that decided: the recorded ones if those are inexact."""
        # Only averages are compared with more digits than shown.
        limit = kernel_limit(rule)
        if limit is not None and (rule.limit is not None or extra_digits(rule)):
            ((only, decided),) = features
            value = None if only.recorded is None or only.recorded.exact else only.recorded.known
            if isinstance(value, Decimal):
                decided = PlainValue(Fraction(value), value)
            if decided.exact is not None:
                return explain_test(only.name, decided, limit)
        return explain_condition(rule.when, self._known(rule.when, target, features))

    def _known(self, sql: SqlFilter, target: Target, features: Sequence[Recomputed]) -> KnownValues:
        known = condition.known_fields(self.past, sql, target)
        values: dict[str, Value] = dict(known.values)
        for feature, plain in features:
            recorded = feature.recorded
            values[feature.name] = plain.shown if recorded is None or recorded.exact else recorded.known
        why_null = {feature.name: feature.why_null for feature, _ in features if feature.why_null is not None}
        lists = ListsAt(self.past.lists(target.batch_id), np.array([target.time_ms]))
        return KnownValues(values, why_null, lists)

    def _score(self, rule: Rule, target: Target, features: Sequence[Recomputed]) -> Iterator[str]:
        if isinstance(rule.score, SqlScore):
            known = self._known(rule.score, target, features)
            number = possible_number(rule.score.expression, known.values, known.lists)
            came_to = 0 if number is None else whole_score(*number.lower.as_integer_ratio())
            words = {name: known.words(name) for name in rule.score.expression.fields()}
            yield f"score {came_to:,}: {score_words(rule.score, words)}"
