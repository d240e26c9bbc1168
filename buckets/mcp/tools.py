"""The tools that read: health, alerts, explanations, keys, rules and their quality."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from buckets.archive.history import History, archived_events
from buckets.backfill.fill_chunks import read_fills
from buckets.changes.origin import listed_rule
from buckets.changes.versions import changes_of, check_known_rules, read_completions, with_differences
from buckets.checkpoint.driver_state import Checkpoint
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.history.explain.explanation import Explanation, as_json
from buckets.history.explain.words import headline
from buckets.moment import iso_text
from buckets.monitor.live import Live, read_live
from buckets.monitor.words import faults_of, schema_news, state_line
from buckets.outputs.recorded_outputs import with_alerts
from buckets.printable import value_text
from buckets.questions.key_events import (
    explained_alert,
    explainer,
    key_events,
    key_test,
    nearness,
    rules_of_key,
)
from buckets.questions.listed_alerts import (
    AlertFilter,
    AskedJob,
    given_findings,
    latest_batches,
    list_alerts,
    place_text,
    read_place,
    recorded_line,
    totals,
)
from buckets.questions.long_questions import named_moment_ms, named_times
from buckets.rules.revision import stage
from buckets.verdicts.quality import Thresholds, quality_report

Answer = dict[str, Any]
MOST_ROWS = 200  # Of each list in an answer
NEW_FILE = "assistant.yaml"  # In a folder of rules, the file for drafts of assistants
Limit = Annotated[int, Field(ge=1, le=MOST_ROWS, description="How many rows at most.")]
Offset = Annotated[int, Field(ge=0, description="How many rows to leave out, to read on where has_more was true.")]
FromTime = Annotated[
    str, Field(description="The first event time, in ISO 8601 and UTC, as in 2026-01-03 or 2026-01-03T10:00Z.")
]
ToTime = Annotated[str, Field(description="The first event time that does not count any more, in the same form.")]
RuleId = Annotated[str, Field(description="Only this rule; empty for all.")]
MostEvents = Annotated[int, Field(ge=1, le=MOST_ROWS, description="How many events of each window at most.")]
_KINDS = {"in force": "", "on trial": "trial", "held back": "held", "all": "all"}
_ALERT = (
    "alert_id", "event_id", "rule_id", "rule", "rule_version", "why", "severity", "warm", "certain",
)  # fmt: skip
_CHANGE = (
    "ruleset_version", "rule_id", "rule_version", "change", "difference", "author", "reason", "first_batch", "place",
)  # fmt: skip
_ALERTS_OF_KEY, _RULES_OF_KEY = 20, 12


def _check_value(value: Any) -> Any:
    if not isinstance(value, str | int | bool):
        message = "must be a text, a whole number, true or false"
        raise ValueError(message)
    return value


KeyFields = dict[str, Annotated[str | int | bool, BeforeValidator(_check_value)]]


class ReadingTools:
    """The tools that change nothing; each answers with a report."""

    def __init__(self, asked: AskedJob) -> None:
        """Read the records of a job, which is not affected."""
        self._asked = asked

    def job_health(self, limit: Limit = 5) -> Answer:
        """Say whether the job runs, its rate, delay and lag, what is wrong with it, and its latest batches.

        state is running, silent (not heard of for ten seconds), gone (died without a word), stopped, or no status (of
        any run); line says it with what to do. now has the last minute, and totals since the start; recorded sums up
        all batches, late events in every group of rules; dead letters are rows that were not valid events, and too_late
        events are not evaluated. null stands for what is not known.
        """
        asked, now_ms = self._asked, epoch_ms()
        checkpoint, folder, rule_set = asked.job.checkpoint, kept_results(asked.job), asked.rule_set
        live = read_live(checkpoint)
        recorded = {} if folder is None else totals(folder)
        line = state_line(asked.conf, checkpoint, live, now_ms)
        batches = [] if folder is None else latest_batches(folder, limit + 1)
        return {
            "state": "no status" if live is None else live.state(now_ms),
            "line": recorded_line(recorded) if live is None and recorded else line,
            "faults": [] if live is None else faults_of(asked.conf, checkpoint, live, now_ms),
            "list_faults": Checkpoint(checkpoint).lists.faults(),
            "rules_version": None if rule_set is None else rule_set.version,
            "rules_in_force": len(asked.rules_in_force),
            "schema_version": None if live is None else schema_news(live.data).get("version"),
            "now": None if live is None else _figures(live),
            "recorded": recorded or None,
            "batches": [batch | {"latest_event_time": _time(batch["latest_event_time"])} for batch in batches[:limit]],
            "has_more": len(batches) > limit,
            "backfills": [fill.words for fill in read_fills(checkpoint)],
        }

    def alerts(
        self,
        kind: Annotated[Literal["in force", "on trial", "held back", "all"], Field(description="Which alerts.")] = (
            "in force"
        ),
        rule_id: RuleId = "",
        key: Annotated[
            KeyFields, Field(description="Only those whose key has these values, by field, as in {'payerId': 'p1'}.")
        ] = {},  # noqa: B006 - it becomes a default in a schema, and nobody changes it
        verdict: Annotated[
            Literal["", "fraud", "legitimate", "unclear", "none"],
            Field(description="Only those that people have found to be this; none for those without a verdict."),
        ] = "",
        from_time: FromTime = "",
        to_time: ToTime = "",
        limit: Limit = 20,
        before: Annotated[str, Field(description="next_before of an earlier answer, to read on.")] = "",
    ) -> Answer:
        """List alerts, newest first, as `buckets alerts` does; of ids explain_alert says more.

        rule is the rule in English, and why the value beside the limit, or the condition with its numbers. An alert is
        warm where nothing that its windows need could be missing, and certain where the limit is crossed for any value
        between the bounds of what is not exact. has_more says that there may be older ones, read by next_before;
        rows_looked_at is at most about a million in one call.
        """
        wanted = AlertFilter(_KINDS[kind], rule_id, "", "", verdict, from_time, to_time, _key_texts(key))
        return self._alerts(wanted, limit, before)

    def explain_alert(
        self,
        alert_id: Annotated[str, Field(description="The id of the alert, or the beginning of it.", min_length=1)],
        most_events: MostEvents = 20,
    ) -> Answer:
        """Explain why an alert was raised, as `buckets explain CONF --json` says it.

        Says the rule as it was, the events in each window as they had arrived by then, each value computed again from
        them beside the recorded one, and the distance of each test to its limit. left_out counts events between the
        first and the last of a window's entries; is_faulty says that a value differs from the recorded one, which is a
        fault of the job. Needs `archive` in the configuration.
        """
        return _explained(explained_alert(History.open(self._asked.job), alert_id, most_events))

    def why_not(
        self,
        event_id: Annotated[str, Field(description="The id of the event.", min_length=1)],
        rule_id: Annotated[str, Field(description="The rule to explain at that event.", min_length=1)],
        at: Annotated[
            str, Field(description="When the event happened, in ISO 8601 and UTC, where several events have its id.")
        ] = "",
        most_events: MostEvents = 20,
    ) -> Answer:
        """Explain why a rule raised no alert at an event, or what it made of it otherwise, as explain_alert does.

        Says whether the rule was evaluated, what held an alert back, and how near each test was to its limit.
        """
        at_ms = named_moment_ms("at", at)
        return _explained(explainer(History.open(self._asked.job), most_events).event(event_id, rule_id, at_ms))

    def key_timeline(
        self,
        key: Annotated[KeyFields, Field(description="The fields of the key, as in {'payerId': 'p1'}.", min_length=1)],
        limit: Limit = 50,
    ) -> Answer:
        """Show the latest events of a key, such as one payer, its alerts, and how near rules are to their limits.

        Events and alerts come newest first, at most 20 alerts of all kinds. rules has what each rule that groups by
        the fields of the key made of the latest event, at most 12: its outcome, its tests in words, and where its first
        window began and ended. Needs `archive` in the configuration.
        """
        asked, texts = self._asked, _key_texts(key)
        test = key_test(texts, asked.job.event_schema.attributes)
        history = History.open(asked.job)
        events = key_events(history, test, limit + 1)
        rules = rules_of_key(asked.rules_in_force, texts)
        near = nearness(explainer(history, 1), events[0], rules[:_RULES_OF_KEY]) if events else []
        alerts = None
        if with_alerts(kept_results(asked.job)) is not None:
            alerts = self._alerts(AlertFilter(kind="all", key_fields=texts), _ALERTS_OF_KEY)
        return {
            "key": texts,
            "events": [
                {"event_id": event["event_id"], "time": _time(event["time_ms"]), "fields": event["fields"]}
                for event in events[:limit]
            ],
            "has_more": len(events) > limit,
            "alerts": [] if alerts is None else alerts["alerts"],
            "has_more_alerts": alerts is not None and alerts["has_more"],
            "rules": [
                {
                    **{name: rule[name] for name in ("rule_id", "outcome", "words")},
                    "window_start": _time(rule["start_ms"]),
                    "window_end": _time(rule["end_ms"]),
                }
                for rule in near
            ],
            "has_more_rules": len(rules) > len(near) > 0,
        }

    def rules(
        self,
        rule_id: RuleId = "",
        as_written: Annotated[bool, Field(description="Whether each rule comes as it is written too.")] = False,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> Answer:
        """List the rules of the job, in English, with who changed each last and since when it is complete.

        place is where the job reads them. A stage is DRAFT, SHADOW (on trial), ACTIVE or PAUSE, with the share of keys
        for which the rule alerts where that is not all. count says how many rules there are in all.
        """
        rules = self._asked.rules(NEW_FILE)
        if rule_id:
            rules.rule(rule_id)
        kept = [each for each in rules.kept if rule_id in ("", each.rule.rule_id)]
        shown = kept[offset : offset + limit]
        completions = read_completions(self._asked.job, [each.rule for each in shown])
        rows = [listed_rule(each, completions[each.rule.rule_id]) | {"stage": stage(each.rule)} for each in shown]
        return {
            "place": rules.name,
            "rules": [row if as_written else row | {"rule": None} for row in rows],
            "count": len(kept),
            "has_more": offset + limit < len(kept),
        }

    def rule_history(self, rule_id: RuleId = "", limit: Limit = 20, offset: Offset = 0) -> Answer:
        """List what has changed in the rules of the job, newest first: by whom, why, and from which batch on.

        A change without a rule_id is of all rules. ruleset_version counts all rules together; difference says in words
        what differs, and place where the change came from.
        """
        job = self._asked.job
        changes = changes_of(job, rule_id or None)
        if rule_id and not changes:
            check_known_rules([rule_id], job, kept_results(job) or job.checkpoint)
        return {
            "changes": [
                {
                    **{name: change[name] for name in _CHANGE},
                    "asked_at": _time(None if change["asked_at"] is None else change["asked_at"] // 1000),
                    "in_force_at": _time(change["in_force_ms"]),
                }
                for change in with_differences(changes[offset : offset + limit])
            ],
            "count": len(changes),
            "has_more": offset + limit < len(changes),
        }

    def quality(self, from_time: FromTime = "", to_time: ToTime = "", limit: Limit = 50, offset: Offset = 0) -> Answer:
        """Say how good each rule is by the verdicts on its alerts, as `buckets rules quality CONF --json` does.

        precision is the share of fraud among alerts found fraud or legitimate, recall that of all confirmed frauds at
        whose events the rule fired; low and high hold the true share with 95 % confidence. Alerts count those on trial,
        but not those held back. time_to_detect and time_to_decide are medians in ms; advice is a rule of thumb.
        """
        job, times = self._asked.job, named_times(from_time, to_time)
        report = quality_report(job, Thresholds(), times, find_events=archived_events(job)).as_json()
        rules = report["rules"]
        shown = rules[offset : offset + limit]
        return report | {"rules": shown, "count": len(rules), "has_more": offset + limit < len(rules)}

    def _alerts(self, wanted: AlertFilter, limit: int, before: str = "") -> Answer:
        asked = self._asked
        listed = list_alerts(asked.results, wanted, read_place(before), given_findings(asked.job), limit)
        return {
            "alerts": [
                {
                    **{name: alert[name] for name in _ALERT},
                    "key": alert["key"] or {},
                    "event_time": _time(alert["event_time"]),
                    "kind": alert["kind"] or "in force",
                    "tags": alert["tags"] or [],
                    "verdict": None if alert["verdict"] is None else alert["verdict"].verdict,
                }
                for alert in listed.rows
            ],
            "has_more": listed.after is not None,
            "next_before": place_text(listed.after),
            "rows_looked_at": listed.looked_at,
        }


def _figures(live: Live) -> Answer:
    minute = live.data["minute"]
    return {
        "written_at": _time(live.data["written_ms"]),
        **{name: minute[name] for name in ("events_per_s", "alerts", "batches")},
        "delay_ms": minute["latency_ms"],
        "batch_ms": minute["batch_ms"],
        "lag_messages": live.data["lag"],
        "since_start": live.data["totals"],
    }


def _explained(explanation: Explanation) -> Answer:
    report: Answer = as_json(explanation)
    tests = () if explanation.condition is None else explanation.condition.tests()
    return report | {
        "headline": headline(explanation),
        "tests": as_json(tests),
        "features": [feature | {"has_more": feature["left_out"] > 0} for feature in report["features"]],
        "is_faulty": explanation.is_faulty,
    }


def _key_texts(key: KeyFields) -> dict[str, str]:
    return {field: value_text(value) for field, value in key.items()}


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_text(time_ms)
