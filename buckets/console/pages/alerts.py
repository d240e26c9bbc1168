"""The page of alerts: newest first, filtered by what its address says, with verdicts on those that are selected."""

from collections.abc import Iterator
from typing import Any

from buckets.changes.list_entries import write_verdicts
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.clock import epoch_ms
from buckets.console.view import Asked, Onward, PageChange, Site, View, address, own_address, part
from buckets.delta.commits import Commits
from buckets.delta.whole_table import is_table, open_table
from buckets.errors import BucketsError, first_line
from buckets.printable import counted
from buckets.questions.listed_alerts import (
    KINDS,
    NO_VERDICT,
    AlertFilter,
    given_findings,
    list_alerts,
    place_text,
    read_place,
)
from buckets.verdicts.confirmed import complete
from buckets.verdicts.verdict import FINDINGS, written_verdict
from buckets.verdicts.verdict_table import verdict_table

SEVERITIES = ("low", "medium", "high", "critical")
_MOST_AT_ONCE = 1_000


def page(asked: Asked) -> View:
    """List alerts."""
    choices = {"": "in force", "trial": "on trial", "held": "held back", "all": "all"}
    assert choices.keys() == KINDS.keys()
    others = {
        "kinds": choices,
        "severities": SEVERITIES,
        "findings": FINDINGS,
        "no_verdict": NO_VERDICT,
        "rule_ids": _rule_ids(asked.site),
    }
    return View("alerts.html", _values(asked) | others)


def changes(asked: Asked) -> Iterator[list[PageChange]]:
    """Yield the list anew each time that alerts or verdicts have been written; only of its first page."""
    watched = [asked.site.results / output for output in KINDS[AlertFilter.of(asked.named).kind]]
    seen = _Versions([*watched, verdict_table(asked.site.job)])
    while True:
        yield [PageChange(part("alerts-list.html", **_values(asked)))] if seen.have_changed() else []


def judge(asked: Asked) -> Onward:
    """Give a verdict on the alerts that are selected.

    Raises:
        BucketsError: none is, or the verdict cannot be given; nothing is written then.
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
    """Return what the list shows."""
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


def _rule_ids(site: Site) -> list[str]:
    """Return the rules that there are or were; of many alerts the same would take long."""
    versions = RuleVersions(site.job.checkpoint)
    rule_set = versions.latest_rule_set()
    now = [] if rule_set is None else [rule.rule_id for rule in rule_set.rules]
    return sorted({*now, *versions.gone_rules()})


class _Versions:
    """Whether tables have been written since; looks for the next file of each log, and lists none."""

    def __init__(self, tables: list[Any]) -> None:
        self._seen = {table: open_table(table).version() if is_table(table) else -1 for table in tables}

    def have_changed(self) -> bool:
        """Return whether one has, and go on from there."""
        changed = False
        for table, version in self._seen.items():
            if Commits(table).has(version + 1):
                self._seen[table], changed = open_table(table).version(), True
        return changed
