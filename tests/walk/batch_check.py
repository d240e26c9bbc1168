"""One batch of a job while it is compared with loops over lists."""

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from buckets.engine.policies import is_in_share
from buckets.rules.feature import NamedFeature
from buckets.rules.group import Group
from buckets.rules.role import asks_alerts, has_roles
from buckets.rules.rule import WHOLE_SHARE, Rule
from tests.oracle import Event, Outcome
from tests.walk.catalogue import BY_ID, CONDITIONS, applies, counted_by
from tests.walk.found import Difference, Found
from tests.walk.recorded import RecordedBatch
from tests.walk.timelines import Row, Timelines, key_fields, key_of
from tests.walk.written import event_of, has_key, in_ms, looked, parsed, passes

if TYPE_CHECKING:
    from tests.walk.oracle_job import OracleJob

OUTCOMES = {
    "evaluated": "evaluated",
    "late": "late",
    "too_late": "too_late",
    "duplicate": "duplicates",
    "collision_not_kept": "collisions_not_kept",
    "overflow": "dead_letters",
    "unjudged": "unjudged",
}
"""The column of `batches` that counts each outcome."""


@dataclass
class Taken:
    """What became of an event or alert in a group."""

    group: Group
    timelines: Timelines
    event: Event
    clock_ms: int | None
    outcome: Outcome
    asks: bool = False
    """Whether it only asks, in a timeline in which others count."""
    is_cold: bool = False
    """Whether the group may have known less of the key than there was."""

    @property
    def is_evaluated(self) -> bool:
        """Whether rules are evaluated at it."""
        return self.outcome.outcome == "evaluated"


class BatchCheck:
    """One batch of the job while it is compared."""

    def __init__(
        self, job: "OracleJob", batch: RecordedBatch, tables: dict[str, list[Row]], filling: Collection[str]
    ) -> None:
        self._job, self._batch, self._tables, self._filling = job, batch, tables, filling
        self._rules = batch.rule_set
        self._rank = {rule.rule_id: rank for rank, rule in enumerate(self._rules.rules)}
        self._found = Found.of(tables)
        self._dead: set[tuple[str, int]] = set()
        self._arrived = self._malformed = 0
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._uncertain: set[str] = set()
        """Groups of alerts whose accounts are not known."""
        groups = (*self._rules.groups, *self._rules.alert_groups)
        self._timelines = {group.group_id: job.timelines(group, batch) for group in groups}
        self._asked_groups = [group for group in self._rules.alert_groups if asks_alerts(group.fields)]
        self._uncertain |= {group.group_id for group in self._asked_groups}
        self._lists = looked(batch)

    def check(self) -> None:
        for source, _, position, line in self._batch.lines:
            self._arrived += 1
            row = parsed(line.decode(), self._batch.terms.event_schema)
            if row is None:
                self._malformed += 1
                self._dead.add((source, position))
                self._job.rare.saw("a row that is not an event")
                continue
            self._event(row, source, position)
        self._nothing_is_left()
        self._accounts()

    def _event(self, row: Row, source: str, position: int) -> None:
        if not (row["payer"] or "").startswith("wild"):
            self._job.clock_ms = max(self._job.clock_ms, row["t"])
        taken = []
        self._job.past.append(row)
        for group in self._rules.groups:
            if self._is_filling(group):
                self._pass_over(group, row, source, position)
                continue
            is_of_roles = has_roles(group.fields)
            if is_of_roles and has_key(group, row, asks=True) and not self._is_own_key(group, row):
                self._counts[group.group_id]["events_in"] += 1
                taken.append(self._take(group, row, source, position, asks=True))
            if not has_key(group, row):
                self._counts[group.group_id]["no_key"] += 1
                self._job.rare.saw("a payment without a key")
            elif is_of_roles and not self._is_own_key(group, row):
                self._take(group, row, source, position, judged=False)
            elif passes(group, row, self._lists):
                taken.append(self._take(group, row, source, position))
            else:
                self._counts[group.group_id]["filtered"] += 1
        taken += [self._ask_alerts(group, row) for group in self._asked_groups if has_key(group, row, asks=True)]
        raised = self._results(taken, row, row["id"])
        for rule, alert in sorted(raised, key=lambda each: self._rank[each[0].rule_id]):
            self._alert(rule, alert, row)

    def _is_own_key(self, group: Group, row: Row) -> bool:
        """Whether an event asks in the timeline in which it counts."""
        return key_of(row, group.fields, asks=True) == key_of(row, group.fields)

    def _ask_alerts(self, group: Group, row: Row) -> Taken:
        """What becomes of an event that asks for the alerts so far; which events do, the accounts do not tell."""
        taken = self._take_in(group, row, row["id"], asks=True)
        taken.is_cold = row["t"] < self._job.clock_ms - taken.timelines.lateness_ms
        return taken

    def _is_filling(self, group: Group) -> bool:
        """Whether the history of a group is being filled in."""
        return any(rule.rule_id in self._filling for rule in group.rules)

    def _pass_over(self, group: Group, row: Row, source: str, position: int) -> None:
        """Do not compare what has become of an event in a group."""
        self._found.sides.pop((group.name, source, position), None)
        for rule in group.rules:
            self._found.evaluations.pop((row["id"], rule.rule_id), None)
            self._found.alerts.pop((row["id"], rule.rule_id), None)

    def _alert(self, rule: Rule, alert: Row, row: Row) -> None:
        """An alert has come out: it is an event for the rules over alerts."""
        alerted = row | {"alert_rule": rule.rule_id, "alert_score": alert["score"], "alert_id": alert["alert_id"]}
        taken = []
        for group in self._rules.alert_groups:
            if group in self._asked_groups:
                if has_key(group, alerted):
                    self._take_in(group, alerted, alerted["alert_id"], judged=False)
                continue
            self._counts[group.group_id]["events_in"] += 1
            if has_key(group, alerted):
                taken.append(self._take_alert(group, alerted))
            else:
                self._counts[group.group_id]["no_key"] += 1
        self._results(taken, alerted, alert["alert_id"])

    def _take(
        self, group: Group, row: Row, source: str, position: int, judged: bool = True, asks: bool = False
    ) -> Taken:
        """What becomes of an event in a group, and whether the side outputs say so."""
        taken = self._take_in(group, row, row["id"], judged, asks)
        of_event = self._found.sides.get((group.name, source, position), {})
        sides = of_event.pop(taken.event.key, {})
        if not of_event:
            self._found.sides.pop((group.name, source, position), None)
        said = _said(sides, taken.outcome, (source, position) in self._found.dead, judged)
        # Of what only fills or asks, nothing but its side outputs says whether its key was evicted.
        cold = not all(side["warm"] for side in sides.values()) or self._is_cold(group, row["id"])
        cold = cold or (has_roles(group.fields) and not sides)
        taken.is_cold = cold and row["t"] < self._job.clock_ms - taken.timelines.lateness_ms
        self._job.rare.saw("an evicted key that returned", taken.is_cold and (row["payer"] or "").startswith("visitor"))
        if said != taken.outcome.outcome:
            if not taken.is_cold:
                self._fail(f"{row['id']} in group {group.name!r} is {said}, and must be {taken.outcome.outcome}")
            taken.outcome.outcome = said
        elif not taken.is_cold:
            self._sides(taken, sides, row)
        self._counts[group.group_id][OUTCOMES[said]] += 1
        if said == "overflow" or taken.outcome.beyond:
            self._dead.add((source, position))
            self._job.rare.saw("a sum past 64 bits")
        return taken

    def _take_in(self, group: Group, row: Row, event_id: str, judged: bool = True, asks: bool = False) -> Taken:
        timelines, event = self._timelines[group.group_id], event_of(group, row, event_id, asks)
        clock_ms = timelines.clock_ms.get(event.key)
        outcome = timelines.ask(event, row) if asks else timelines.take(event, row, judged)
        return Taken(group, timelines, event, clock_ms, outcome, asks)

    def _take_alert(self, group: Group, row: Row) -> Taken:
        """What becomes of an alert in a group of alerts, which no side output says."""
        taken = self._take_in(group, row, row["alert_id"])
        # Of an alert that no rule is evaluated at, as where all are paused, nothing says whether its key was evicted.
        is_told = any((row["alert_id"], rule.rule_id) in self._found.evaluations for rule in group.rules)
        cold = not is_told or self._is_cold(group, row["alert_id"])
        taken.is_cold = cold and row["t"] < self._job.clock_ms - taken.timelines.lateness_ms
        if taken.is_cold:
            self._uncertain.add(group.group_id)
        self._counts[group.group_id][OUTCOMES[taken.outcome.outcome]] += 1
        return taken

    def _is_cold(self, group: Group, event_id: str) -> bool:
        """Whether a result of a group's own rules at an event is not warm."""
        own = (rule for rule in group.rules if len(rule.groupings()) == 1)
        rows = (self._found.evaluations.get((event_id, rule.rule_id)) for rule in own)
        return any(row is not None and not row["warm"] for row in rows)

    def _sides(self, taken: Taken, sides: dict[str, Row], row: Row) -> None:
        """Compare what side outputs say of an event."""
        outcome, expected = taken.outcome, {}
        if outcome.outcome in ("late", "too_late"):
            expected["late_events"] = (outcome.applied, outcome.clock_ms, outcome.other_event_id)
        elif outcome.outcome == "duplicate":
            expected["duplicates"] = ()
        elif outcome.other_event_id is not None and outcome.outcome != "overflow":
            expected["collisions"] = (outcome.applied, outcome.other_event_id)
        shown = {
            "late_events": lambda side: (side["applied"], in_ms(side["clock"]), side["other_event_id"]),
            "duplicates": lambda side: (),
            "collisions": lambda side: (side["kept"], side["other_event_id"]),
        }
        said = {name: shown[name](side) for name, side in sides.items()}
        if said != expected:
            self._fail(f"{row['id']} in group {taken.group.name!r}: side outputs say {said}, and must say {expected}")

    def _results(self, taken: list[Taken], row: Row, event_id: str) -> list[tuple[Rule, Row]]:
        """Compare the results of all rules at an event, and where alerts are; returns what rules over alerts take."""
        raised = []
        for rule in self._rules.evaluated:
            home = _home(rule, taken)
            if home is None or not rule.is_evaluated:
                continue
            result = self._found.evaluations.pop((event_id, rule.rule_id), None)
            fired = (
                self._features(rule, taken, row, result) if not rule.is_short else self._aggregate(rule, home, result)
            )
            if result is not None and result["fired"]:
                alert = self._decided(rule, home, result, fired, event_id)
                raised += [(rule, alert)] if alert is not None else []
        return raised

    def _aggregate(self, rule: Rule, home: Taken, result: Row | None) -> bool | None:
        """Compare the result of a rule of one aggregate; returns whether it fires, if that is known."""
        expected, key = home.outcome.results.get(rule.rule_id), (rule.rule_id, home.event.key)
        if home.is_cold:
            expected = None
        elif (result is None) != (expected is None):
            self._fail(f"{rule.rule_id} at {home.event}: there is {result}, and must be {expected}")
        if rule.reset_on_alert and result is not None and not result["warm"]:
            home.timelines.follow_reset(key, home.event.time_ms, result["fired"])
        if result is None or expected is None or not result["warm"]:
            return None
        value, lower, upper = result["value"], result["lower"], result["upper"]
        if result["exact"]:
            same = value == lower == upper == expected.value and result["fired"] == expected.fired
            self._job.rare.saw("an aggregate of no value", value is None)
        else:
            same = expected.value is None or lower <= expected.value <= upper
        same = same and result["count_lower"] <= expected.count <= result["count_upper"]
        if not same:
            self._fail(f"{rule.rule_id} at {home.event}: {result}, and must be {expected}")
        return expected.fired

    def _features(self, rule: Rule, taken: list[Taken], row: Row, result: Row | None) -> bool | None:
        """Compare the features of a rule at an event; returns whether it fires, if that is known."""
        named = rule.named_features()
        of_groupings = (fields for fields, _ in rule.groupings())
        keyed = {fields for fields in of_groupings if None not in map(row.get, key_fields(fields, asks=True).values())}
        of_groups = [_of_fields(taken, fields) for fields in keyed]
        if any(each.is_cold for each in of_groups):
            return None
        expected = applies(rule.rule_id, row) and all(
            each.timelines.evaluates(each.event, each.clock_ms, each.outcome, each.asks) for each in of_groups
        )
        for feature in named:
            if feature.fields not in keyed:
                continue
            each = _of_fields(taken, feature.fields)
            expected = expected and each.timelines.reaches(feature.feature, each.event, each.clock_ms)
        if any(rule.rule_id in each.outcome.beyond for each in of_groups):
            expected = False
            self._job.rare.saw("a sum of a feature past 64 bits")
        if (result is not None) != expected:
            self._fail(f"{rule.rule_id} at {row}: there is {result}, and must be {'one' if expected else 'none'}")
        if result is None or not result["warm"]:
            return None
        values, terms = {}, {term["name"]: term for term in json.loads(result["terms"])}
        for feature in named:
            value = self._feature(rule, feature, taken) if feature.fields in keyed else None
            self._job.rare.saw("a feature of a group without the event", feature.fields not in keyed)
            values[feature.name] = value
            if not _agrees(terms[feature.name], value):
                self._fail(f"{rule.rule_id} at {row}: {terms[feature.name]}, and the value is {value}")
        fires = CONDITIONS[BY_ID[rule.rule_id].written["when"]](values, row, self._lists)
        if all(term["exact"] for term in terms.values()) and bool(fires) != result["fired"]:
            self._fail(f"{rule.rule_id} at {row}: {result}, and of {values} the condition is {fires}")
        return bool(fires)

    def _feature(self, rule: Rule, feature: NamedFeature, taken: list[Taken]) -> Any:
        """What a loop makes of a feature at an event."""
        each, counted = _of_fields(taken, feature.fields), counted_by(rule.rule_id, feature.name)
        return each.timelines.feature(feature, each.event, each.clock_ms, rule.rule_id, counted)

    def _decided(self, rule: Rule, home: Taken, result: Row, fires: bool | None, event_id: str) -> Row | None:
        """Compare where the alert of a fired rule has come out; returns it, if it is for the rules over alerts."""
        output, alert = self._found.alerts.pop((event_id, rule.rule_id), (None, None))
        if alert is None:
            self._fail(f"{rule.rule_id} at {home.event}: fired, and is in no output")
            return None
        if alert["certain"] and fires is False:
            self._fail(f"{rule.rule_id} at {home.event}: {alert} is certain, and it must not fire")
        remembered = (rule.rule_id, home.group.generation, home.event.key)
        held_by = self._held_by(rule, result, remembered, home.event.time_ms)
        is_active = rule.state == "ACTIVE" and (
            rule.rollout == WHOLE_SHARE or is_in_share(rule, _sorted_key(result["key"]))
        )
        expected = "held_alerts" if held_by else "alerts" if is_active else "shadow_alerts"
        if not home.is_cold and (output, alert.get("held_by")) != (expected, held_by):
            self._fail(
                f"{rule.rule_id} at {home.event}: is in {output} ({alert.get('held_by')}), not {expected} ({held_by})"
            )
        if output != "held_alerts" and rule.cooldown is not None:
            self._job.alert_ms[remembered] = max(home.event.time_ms, self._job.alert_ms.get(remembered, -(2**62)))
        return alert if output == "alerts" and rule.on == "events" and not rule.asks_alerts else None

    def _held_by(self, rule: Rule, result: Row, remembered: Any, time_ms: int) -> str | None:
        """What has to hold an alert back."""
        if rule.require_warm and not result["warm"]:
            return "warm"
        key = json.loads(result["key"])
        for snooze in rule.snoozes:
            starts_ms = -(2**62) if snooze.start is None else in_ms(snooze.start)
            if snooze.key in (None, key) and starts_ms <= time_ms < in_ms(snooze.until):
                return "snooze"
        alert_ms = self._job.alert_ms.get(remembered)
        if rule.cooldown is not None and alert_ms is not None and time_ms < alert_ms + rule.cooldown:
            return "cooldown"
        return None

    def _nothing_is_left(self) -> None:
        """See that there is no row that nothing asked for, and that dead letters are those that must be there."""
        for name in ("evaluations", "alerts", "sides"):
            if left := getattr(self._found, name):
                self._fail(f"{name}: {len(left)} rows should not be there, as {next(iter(left.items()))}")
        if self._found.dead != self._dead:
            self._fail(f"dead letters: {sorted(self._found.dead ^ self._dead)[:3]} are there or must be, not both")

    def _accounts(self) -> None:
        """Compare the accounts of each group."""
        rows = {row["group_id"]: row for row in self._tables["batches"]}
        for group in (*self._rules.groups, *self._rules.alert_groups):
            row, counts = rows.pop(group.group_id), self._counts[group.group_id]
            if self._is_filling(group):
                continue
            if group.on == "events":
                counts["events_in"] += self._arrived
                counts["dead_letters"] += self._malformed
            elif group.group_id in self._uncertain:
                continue
            names = ("events_in", "no_key", "filtered", *OUTCOMES.values())
            said, expected = {name: row[name] for name in names}, {name: counts[name] for name in names}
            if said != expected:
                self._fail(f"accounts of {group.name!r}: {said}, and must be {expected}")
        if rows:
            self._fail(f"accounts: there are groups that should not be there: {rows}")
        for output in ("alerts", "held_alerts"):
            counted = sum(row[output] for row in self._tables["batches"])
            if counted != len(self._tables[output]):
                self._fail(f"accounts: {counted} {output}, and there are {len(self._tables[output])}")

    def _fail(self, what: str) -> None:
        message = f"batch {self._batch.number}, rules {self._rules.version}: {what}"
        raise Difference(message)


def _home(rule: Rule, taken: list[Taken]) -> Taken | None:
    """What became of an event in the group of a rule's own key."""
    for each in taken:
        same = frozenset(each.group.fields) == frozenset(rule.group_by)
        if same and each.group.on == rule.on and rule.rule_id in {other.rule_id for other in each.group.rules}:
            return each
    return None


def _of_fields(taken: list[Taken], fields: tuple[str, ...]) -> Taken:
    """What became of an event in the group without a filter that groups by some fields."""
    mine = (each for each in taken if not each.group.where)
    return next(each for each in mine if frozenset(each.group.fields) == frozenset(fields))


def _said(sides: dict[str, Row], outcome: Outcome, is_dead: bool, judged: bool) -> str:
    """What the side outputs say has become of an event in a group."""
    if "late_events" in sides:
        return "too_late" if sides["late_events"]["too_late"] else "late"
    if "duplicates" in sides:
        return "duplicate"
    if "collisions" in sides and not sides["collisions"]["kept"]:
        return "collision_not_kept"
    if is_dead and outcome.outcome == "overflow":
        return "overflow"
    return "evaluated" if judged else "unjudged"


def _agrees(term: Row, value: Any) -> bool:
    """Whether a feature is what it must be, or may be."""
    if term.get("type") == "text":
        return term["value"] == value or not term["exact"]
    if term["exact"]:
        said = term["value"]
        return said == value if said is None or isinstance(said, bool) else value is not None and Decimal(said) == value
    if value is None:
        return bool(term.get("may_be_null"))
    return Decimal(term["lower"]) <= value <= Decimal(term["upper"])


def _sorted_key(key: str) -> str:
    return json.dumps(dict(sorted(json.loads(key).items())), ensure_ascii=False)
