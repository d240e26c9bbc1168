"""The job's records of a rule at an event, of the rule at that time, and of its earlier alerts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from buckets.delta.whole_table import is_between, is_in
from buckets.engine.policies import is_in_share
from buckets.errors import BucketsError
from buckets.history.explain.explanation import EventThen, Reason, RecordedValue, RuleOutcome, RuleThen
from buckets.history.explain.history_lookup import Arrivals, Past
from buckets.history.explain.key import RANKS, KeyHistory, Target, as_arrivals, find_group, score_again
from buckets.json_text import write_json
from buckets.moment import TimeRange, exact_time_text
from buckets.outputs import columns
from buckets.outputs.columns import HELD_ALERTS
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Row, Selection
from buckets.rules.group import Group
from buckets.rules.policies import FiredAt, key_texts
from buckets.rules.rule import WHOLE_SHARE, Rule, share_text
from buckets.rules.warmth import rules_warmth


def key_of(rule: Rule, target: Target) -> dict[str, Any]:
    """Return the key of a rule at an event, as results show it."""
    return {field: target.value(field) for field in rule.group_by}


@dataclass(frozen=True)
class FiredBefore:
    """The earlier events at which a rule fired for a key; `rules.policies` sees those that became alerts."""

    past: Past
    rule: Rule
    target: Target

    @cached_property
    def _home(self) -> Group:
        fields, where = self.rule.groupings()[0]
        home = find_group(self.past.rule_set(self.target.batch_id), self.rule, fields, where)
        assert home is not None
        return home

    @cached_property
    def _filled(self) -> list[Row] | None:
        """The alerts from a backfilled history, most of them never published. None without a backfill."""
        is_here = self.target.on == "events" and len(self.rule.groupings()) == 1
        if not is_here or self.past.fill_of(self._home, self.target.batch_id) is None:
            return None
        if not self.rule.depends_on_alerts:
            return []
        outputs = score_again(self.past, self.target.arrivals, [self._home], None, ALERT_OUTPUTS)
        rows = [row | {"output": output} for output, rows in outputs.items() for row in rows]
        return [row for row in rows if row["rule_id"] == self.rule.rule_id]

    @property
    def origin(self) -> str:
        """Their origin, if they were never published."""
        return "" if self._filled is None else ", as of its filled-in history"

    def since(self, from_ms: int | None) -> list[Row]:
        """Return those from a time on, None for all, without held-back ones."""
        return [row for row in self.fired(from_ms) if row["output"] != HELD_ALERTS]

    def fired(self, from_ms: int | None) -> Iterator[Row]:
        """Yield all from a time on, None for all, each with its `output`."""
        if self._filled is not None:
            rows, since = self._filled, 0
        else:  # The group may have restarted.
            rows, since = self._recorded(from_ms), self.past.first_batch_of(self._home.generation)
        number = self.target.number if self.target.on == "events" else self.target.number // RANKS
        for row, arrivals, came_at in self.past.came(self.past.schema, rows):
            is_before = arrivals.numbers[came_at] < number and arrivals.batches[came_at] >= since
            if is_before and TimeRange(from_ms).has(row["event_time"]):
                yield row

    def _recorded(self, from_ms: int | None) -> list[Row]:
        """Read them by the key under all names of its fields, in the rule's order or sorted by name."""
        fields, texts = key_of(self.rule, self.target), set()
        for names in product(*map(self.past.spellings, fields)):
            key = dict(zip(names, fields.values(), strict=True))
            texts |= {write_json(key), json.dumps(key, ensure_ascii=False, sort_keys=True)}
        wanted = Selection({"rule_id": [self.rule.rule_id], "key": texts}, TimeRange(from_ms))
        return [row | {"output": output} for output in ALERT_OUTPUTS for row in self.past.results(output, wanted)]


def policy_reasons(earlier: FiredBefore, is_warm: bool) -> tuple[list[Reason], list[Reason], bool]:
    """Say what the policy of a rule makes of an event at which it fired.

    Returns:
        The reasons to hold the alert back, in the order in which policies decide: the first counts; the reasons from
        the rule's state and rollout; and whether those put the alert into `shadow_alerts`.
    """
    rule, key = earlier.rule, key_of(earlier.rule, earlier.target)
    fired = FiredAt(earlier.target.time_ms, is_warm, lambda: key_texts(key))
    deciding = [(policy, policy.held_by) for policy in rule.policies if policy.held_by is not None]
    held = [Reason(code, sentence) for policy, code in deciding for sentence in policy.explain(fired, earlier)]
    if rule.state == "SHADOW":
        return held, [Reason("shadow", "the rule is on trial (SHADOW): its alerts go to shadow_alerts")], True
    if rule.rollout >= WHOLE_SHARE:
        return held, [], False
    is_inside = is_in_share(rule, json.dumps(key, ensure_ascii=False, sort_keys=True))
    where = "inside" if is_inside else "outside"
    sentence = f"the key is {where} the {share_text(rule.rollout)} of keys that the rule alerts for"
    return held, [Reason("rollout", sentence)], not is_inside


_OUTCOMES: Mapping[str, RuleOutcome] = {
    columns.ALERTS: "alert",
    columns.SHADOW_ALERTS: "shadow alert",
    columns.HELD_ALERTS: "held back",
}


@dataclass(frozen=True)
class RecordedResult:
    """A result of a rule at an event."""

    outcome: RuleOutcome
    row: Row
    origin: str

    @cached_property
    def features(self) -> Mapping[str, RecordedValue]:
        """Its values, by feature."""
        row = self.row
        if row.get("terms") is None or row.get("value") is not None:
            value, lower, upper = (
                None if row[name] is None else str(row[name]) for name in ("value", "lower", "upper")
            )
            return {"value": RecordedValue(value, lower, upper, bool(row["exact"]), bool(row["warm"]))}
        return {term["name"]: _value_of(term) for term in row["terms"] or []}


def _value_of(term: Mapping[str, Any]) -> RecordedValue:
    bounds, is_text = (term.get("lower"), term.get("upper")), term.get("type") == "text"
    return RecordedValue(term["value"], *bounds, term["exact"], term["warm"], is_text)


def recorded_alert(output: str, row: Row) -> RecordedResult:
    """Read a row of an output of alerts."""
    return RecordedResult(_OUTCOMES[output], row, f"recorded in table {output}")


def find_recorded(
    past: Past, rule: Rule, target: Target, histories: Sequence[KeyHistory], from_ms: int
) -> RecordedResult | None:
    """Return the recorded result of a rule at an event, or the engine's recomputed one."""

    def of_event(event_id: str) -> Selection:
        times = TimeRange(target.time_ms, target.time_ms + 1)
        return Selection({"rule_id": [rule.rule_id], "event_id": [event_id]}, times)

    terms = past.terms(target.batch_id)
    wanted = of_event(target.value(terms.event_schema.event_id))
    for output in ALERT_OUTPUTS:
        for row in past.results(output, wanted):
            # A rule over alerts may fire several times at one event.
            if target.on == "events" or row["event"].get("alert_id") == target.name:
                return recorded_alert(output, row)
    origin, rows = "recorded in table evaluations", past.results(columns.EVALUATIONS, of_event(target.name))
    if not rows and target.on == "events":
        origin = "not recorded: scored again by the engine in memory"
        groups = [history.group for history in histories]
        # Resets by alerts depend on all earlier alerts, and repeats on all earlier ids.
        since_ms = None if rule.reset_on_alert or terms.engine.duplicates.within is not None else from_ms
        scored = score_again(past, target.arrivals, groups, since_ms, [columns.EVALUATIONS])[columns.EVALUATIONS]
        source, _, position = target.arrivals.origins[0]
        for row in scored:
            is_event = (row["source"], row["position"]) == (source, position) if "source" in row else True
            if row["rule_id"] == rule.rule_id and row["event_id"] == target.name and is_event:
                rows = [row]
    return RecordedResult("alert" if rows[0]["fired"] else "did not fire", rows[0], origin) if rows else None


def arrivals_of_event(past: Past, event_id: str, at_ms: int | None) -> Arrivals | None:
    """Read the arrivals of an event; None if a row with its id arrived but was not an event."""
    arrivals = _events(past, event_id, at_ms)
    times_ms = sorted(set(arrivals.times_ms.tolist()))
    if len(times_ms) > 1:
        some = ", ".join(exact_time_text(time_ms) for time_ms in times_ms[:3])
        message = f"{len(times_ms)} events have the id {event_id!r}, at {some}; say which with --at"
        raise BucketsError(message)
    if len(arrivals):
        return arrivals
    if at_ms is not None or not past.faults_of(event_id):
        raise BucketsError(_not_found(past, event_id, at_ms))
    return None


def target_of_alert(past: Past, row: Row) -> Target:
    """Read the event of an alert: the exact arrival that raised it."""
    arrivals = _events(past, row["event_id"], row["event_time"])
    if not len(arrivals):
        raise BucketsError(_not_found(past, row["event_id"], row["event_time"]))
    return Target(arrivals.take(np.array([arrivals.row_of(row["source"], row["position"])])), "events")


def alert_that_raised(past: Past, rule: Rule, target: Target, row: Row) -> Target:
    """Return the alert that triggered an alert of a rule over alerts."""
    raised = past.alert(row["event"]["alert_id"])
    alerts = None if raised is None else as_arrivals(past, target.batch_id, [raised[1]])
    if alerts is None or not len(alerts):
        message = (
            f"rule {rule.rule_id!r} counts alerts, and alert {row['event']['alert_id']!r}, which raised this one, is "
            "not found; the table of alerts must be as the job wrote it"
        )
        raise BucketsError(message)
    return Target(alerts, "alerts")


def _events(past: Past, event_id: str, at_ms: int | None) -> Arrivals:
    schema = past.schema
    tests = [] if at_ms is None else is_between(schema.event_time.field, TimeRange(at_ms, at_ms + 1))
    return past.events(schema, [is_in(schema.event_id, [event_id]), *tests])


def _not_found(past: Past, event_id: str, at_ms: int | None) -> str:
    recorded, first, last = past.recorded, past.recorded.cuts[0].batch_id, past.recorded.cuts[-1].batch_id
    when = "" if at_ms is None else f" at {exact_time_text(at_ms)}"
    ends = {f"begins with batch {first}": recorded.before, f"ends with batch {last}": recorded.after}
    lacking = " and ".join(words for words, batch in ends.items() if batch is not None)
    hint = f", which {lacking}; the event may have come in another" if lacking else ""
    return f"event {event_id!r}{when} is not in the archive {past.archive.folder}{hint}; check the id"


def event_then(target: Target, came: int) -> EventThen:
    """Return the event as it arrived, and how often."""
    arrivals, schema = target.arrivals, target.arrivals.schema
    names = [name for name in schema.all_fields if name in arrivals.columns]
    return EventThen(**arrivals.arrived(0), fields={name: arrivals.shown(name, 0) for name in names}, came=came)


def rule_then(past: Past, rule: Rule, target: Target) -> RuleThen:
    """Return the rule at that time, and the author of that version."""
    cut = past.cuts[target.batch_id]
    made, change = past.versions.latest_change(rule.rule_id, cut.ruleset_version) or (None, None)
    as_written = {each.rule_id: each for each in past.rule_set(target.batch_id).rules}[rule.rule_id]
    return RuleThen(
        rule_id=rule.rule_id,
        version=rule.version,
        state=rule.state,
        sentence=as_written.sentence(),
        written=as_written.model_dump(by_alias=True, mode="json"),
        ruleset_version=cut.ruleset_version,
        author="" if change is None else change.author,
        reason="" if change is None else change.reason,
        made_ms=None if made is None else made.made_ms,
        lists={name: version for name, version in cut.lists.items() if name in rule.lists},
    )


def warmth_of(past: Past, rule: Rule, target: Target) -> str:
    """Say since when the windows of a rule are complete, seen from an event; empty for a rule over alerts."""
    if rule.on == "alerts":
        return ""
    warmth, time_ms = rules_warmth(past.rule_set(target.batch_id), (), 0).get(rule.rule_id), target.time_ms
    if warmth is None or not warmth.warm:
        return "the rule keeps nothing"
    for span in warmth.warm:
        if (span.from_ms is None or span.from_ms <= time_ms) and (span.until_ms is None or time_ms < span.until_ms):
            since = "since the first event" if span.from_ms is None else f"from {exact_time_text(span.from_ms)} on"
            return f"complete {since}"
    ahead = next((span.from_ms for span in warmth.warm if span.from_ms is not None and span.from_ms > time_ms), None)
    return "not complete" if ahead is None else f"not complete: only from {exact_time_text(ahead)} on"
