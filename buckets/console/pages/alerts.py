"""Pages of alerts: the list with verdicts, one alert and its explanation, keys, verdicts, and the quality of rules."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from buckets.archive.history import History, archived_events
from buckets.changes.list_entries import write_verdicts
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.console.view import Asked, Onward, PageChange, Site, View, address, own_address, part
from buckets.delta.commits import Commits
from buckets.delta.whole_table import is_table, open_table
from buckets.errors import BucketsError, first_line
from buckets.history.explain.maker import Explainer
from buckets.history.explain.words import explained
from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, full_alert_id, output_rows, with_alerts
from buckets.printable import counted, quoted, value_text
from buckets.questions.key_events import explainer, key_events, key_test, nearness, rules_of_key
from buckets.questions.listed_alerts import (
    KINDS,
    NO_VERDICT,
    AlertFilter,
    given_findings,
    list_alerts,
    place_text,
    read_place,
    why,
)
from buckets.questions.long_questions import named_moment_ms
from buckets.rules.rule import SEVERITIES
from buckets.verdicts.confirmed import complete, job_verdicts
from buckets.verdicts.quality import Thresholds, quality_report
from buckets.verdicts.verdict import FINDINGS, written_verdict
from buckets.verdicts.verdict_table import verdict_table

_MOST_AT_ONCE = 1_000
_SHOWN_EVENTS = 1_000  # Of each window that is explained
_OTHERS, _LOOKED_AT = 10, 100_000
"""How many other alerts of a key are shown, and among how many of the newest they are looked for."""
_EVENTS_OF_KEY, _ALERTS_OF_KEY, _RULES_OF_KEY = 100, 20, 12
_VERDICTS = 200


def listed(asked: Asked) -> View:
    """List alerts, newest first, filtered by fields of the URL."""
    choices = {"": "in force", "trial": "on trial", "held": "held back", "all": "all"}
    assert choices.keys() == KINDS.keys()
    versions = RuleVersions(asked.site.job.checkpoint)
    rule_set = versions.latest_rule_set()
    rules = [] if rule_set is None else [rule.rule_id for rule in rule_set.rules]
    return View(
        "alerts.html",
        kinds=choices,
        severities=SEVERITIES,
        findings=FINDINGS,
        no_verdict=NO_VERDICT,
        rule_ids=sorted({*rules, *versions.gone_rules()}),
        **_values(asked),
    )


def list_changes(asked: Asked) -> Iterator[list[PageChange]]:
    """Yield the first page of the list again each time alerts or verdicts have been written."""
    watched = [asked.site.results / output for output in KINDS[AlertFilter.of(asked.named).kind]]
    for has_changed in _changes([*watched, verdict_table(asked.site.job)]):
        yield [PageChange(part("alerts-list.html", **_values(asked)))] if has_changed else []


def judge(asked: Asked) -> Onward:
    """Record a verdict on the selected alerts.

    Raises:
        BucketsError: none is selected, or the verdict is invalid; nothing is written.
    """
    ids, finding = list(dict.fromkeys(asked.form.get("alert", ()))), asked.given("verdict")
    if not ids:
        message = "no alert is selected; tick the alerts that the verdict is about"
        raise BucketsError(message)
    if len(ids) > _MOST_AT_ONCE:
        message = (
            f"{len(ids):,} alerts are selected, {_MOST_AT_ONCE:,} is the limit; take `buckets verdict --from-file`"
        )
        raise BucketsError(message)
    if finding not in FINDINGS:
        message = f"no verdict is chosen; take one of {', '.join(FINDINGS)}"
        raise BucketsError(message)
    job, now_ms = asked.site.job, epoch_ms()
    try:
        said = {"verdict": finding, "note": asked.given("note")}
        given = [written_verdict({"alert_id": each, **said}, asked.person.name, now_ms) for each in ids]
    except ValueError as error:
        raise BucketsError(first_line(error)) from None
    completed, faults = complete(given, asked.site.results)
    if faults:
        raise BucketsError(next(iter(faults.values())).partition("; --unchecked")[0])
    write_verdicts(job, completed)
    return Onward(own_address(asked.given("back"), "/alerts"), f"{counted(len(ids), 'alert')}: {finding}")


def _values(asked: Asked) -> dict[str, Any]:
    wanted, before = AlertFilter.of(asked.named), asked.named("before")
    listed = list_alerts(asked.site.results, wanted, read_place(before), given_findings(asked.site.job))
    fields = wanted.fields()
    return {
        "filter": wanted,
        "rows": listed.rows,
        "looked_at": listed.looked_at,
        "is_first": not before,
        "newest": address("/alerts", **fields),
        "older": None if listed.after is None else address("/alerts", **fields, before=place_text(listed.after)),
        "live": address("/alerts/live", **fields),
        "back": address("/alerts", **fields, before=before),
    }


def _changes(tables: Iterable[Path]) -> Iterator[bool]:
    """Yield whether tables have changed, by probing for the next file of each log, without listing."""
    seen = {table: open_table(table).version() if is_table(table) else -1 for table in tables}
    while True:
        written = [table for table, version in seen.items() if Commits(table).has(version + 1)]
        seen |= {table: open_table(table).version() for table in written}
        yield bool(written)


def alert(asked: Asked) -> View:
    """Show an alert; by its id, or by its rule and event."""
    site = asked.site
    row = _recorded(site, asked)
    given = given_findings(site.job)
    keys = list((row["key"] or {}).values())
    wanted = AlertFilter(kind="all", key=value_text(keys[0]) if len(keys) == 1 else "")
    others = [] if len(keys) != 1 else list_alerts(site.results, wanted, None, given, _OTHERS + 1, _LOOKED_AT).rows
    return View(
        "alert.html",
        row=row | {"why": why(row)},
        key=row["key"] or {},
        verdict=given.of(row["alert_id"], row["event_id"]),
        findings=FINDINGS,
        others=[other for other in others if other["alert_id"] != row["alert_id"]][:_OTHERS],
        others_key=wanted.key,
        is_archived=site.job.settings.archive is not None,
        rule_ids=[rule.rule_id for rule in site.rules_in_force],
    )


def explanation(asked: Asked) -> View:
    """Explain an alert, as a part of its page."""
    return View("explanation.html", **explained(_explainer(asked.site).alert(asked.named("id"))))


def why_page(asked: Asked) -> View:
    """Explain the result of a rule at an event, also if it is nothing."""
    event, rule = asked.named("event"), asked.named("rule")
    found: dict[str, Any] = {}
    if event and rule:
        at_ms = named_moment_ms("at", asked.named("at"))
        found = explained(_explainer(asked.site).event(event, rule, at_ms))
    rule_ids = [each.rule_id for each in asked.site.rules_in_force]
    return View("why.html", event_id=event, rule_id=rule, rule_ids=rule_ids, explained=bool(found), **found)


def _recorded(site: Site, asked: Asked) -> dict[str, Any]:
    alert_id = asked.named("id")
    times = ANY_TIME
    if alert_id and asked.named("at"):
        # Lists pass the time, so that files of other times need not be read.
        at_ms = named_moment_ms("at", asked.named("at"))
        assert at_ms is not None
        wanted, named, times = {"alert_id": [alert_id]}, f"alert {quoted(alert_id)}", TimeRange(at_ms, at_ms + 1)
    elif alert_id:
        wanted, named = {"alert_id": [full_alert_id(site.results, alert_id)]}, f"alert {quoted(alert_id)}"
    else:
        wanted = {"rule_id": [asked.named("rule")], "event_id": [asked.named("event")]}
        named = f"alert of rule {quoted(asked.named('rule'))} at event {quoted(asked.named('event'))}"
    for output in ALERT_OUTPUTS:
        for row in output_rows(site.results, output, selection=Selection(wanted, times)):
            empty = dict.fromkeys(("terms", "condition", "severity", "tags", "score", "held_back", "held_by"))
            return empty | row | {"output": output}
    message = f"there is no {named} in {site.results}; it may not be written yet: look again in a moment"
    raise BucketsError(message)


def _explainer(site: Site) -> Explainer:
    return explainer(History.open(site.job), _SHOWN_EVENTS)


def key(asked: Asked) -> View:
    """Ask for a key, or show it with its alerts; data from the archive is loaded later."""
    site, field, value = asked.site, asked.named("field"), asked.named("value")
    fields = site.job.event_schema.attributes
    if value:
        key_test({field: value}, fields)
    return View(
        "key.html",
        field=field,
        value=value,
        fields=list(fields),
        alerts=latest_alerts(site, AlertFilter(kind="all", key=value), _ALERTS_OF_KEY) if value else [],
        is_archived=site.job.settings.archive is not None,
    )


def latest_alerts(site: Site, wanted: AlertFilter, most: int) -> list[dict[str, Any]]:
    """Return the newest of the selected alerts; empty if nothing is recorded."""
    folder = with_alerts(kept_results(site.job))
    if folder is None:
        return []
    return list_alerts(folder, wanted, None, given_findings(site.job), most).rows


def key_events_part(asked: Asked) -> View:
    """Show the latest events of a key, and the results of rules at the last one, as a part of the page."""
    site, field, value = asked.site, asked.named("field"), asked.named("value")
    test = key_test({field: value}, site.job.event_schema.attributes)
    history = History.open(site.job)
    rows = key_events(history, test, _EVENTS_OF_KEY)
    rules = rules_of_key(site.rules_in_force, [field])[:_RULES_OF_KEY]
    near = nearness(explainer(history, _SHOWN_EVENTS), rows[0], rules) if rows else []
    measure = next(iter(site.job.event_schema.measures), None)
    return View("key-events.html", rows=rows, near=near, measure=measure)


def verdicts(asked: Asked) -> View:
    """List verdicts, the latest first; the latest verdict on an alert counts."""
    by_age = sorted(job_verdicts(asked.site.job), key=lambda verdict: verdict.age, reverse=True)
    counting = {verdict.subject: verdict for verdict in reversed(by_age)}
    rows = [{"verdict": each, "counts": counting[each.subject] is each} for each in by_age[:_VERDICTS]]
    return View("verdicts.html", rows=rows, all=len(by_age))


def quality(asked: Asked) -> View:
    """Show the page for the quality of rules, which is computed after it has loaded."""
    assert asked.site.results
    return View("quality-page.html")


def quality_table(asked: Asked) -> View:
    """Compute the quality of rules, as a part of its page."""
    job = asked.site.job
    return View("quality-table.html", report=quality_report(job, Thresholds(), find_events=archived_events(job)))
