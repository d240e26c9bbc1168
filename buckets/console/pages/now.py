"""The page of what the job is doing now: its figures, the last hour as charts, and what is wrong in one line."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from buckets.backfill.fill_chunks import read_fills
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.console.view import Asked, PageChange, Site, View, part
from buckets.monitor.last_minute import as_columns
from buckets.monitor.live import Live, read_live
from buckets.monitor.words import FALLS_BEHIND, faults_of, pace_line, pace_state, quantiles_text, state_line
from buckets.outputs.binary_messages import crossed
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import alerts_by_day
from buckets.printable import counted
from buckets.questions.listed_alerts import AlertFilter, given_findings, list_alerts, recorded_line, totals

_LATEST = 10
_DAYS = 30
_GROUP_COUNTS = ("late", "too_late", "collisions_not_kept", "duplicates", "no_key")


class Card(NamedTuple):
    """A figure: what it is of, its number, and what else is to be said of it."""

    title: str
    number: str
    note: str = ""


def page(asked: Asked) -> View:
    """Show what the job is doing, or what it has done last."""
    live = read_live(asked.site.job.checkpoint)
    values = _values(asked.site, live)
    by_day = {} if live is not None else _by_day(asked.site)
    return View("now.html", values | {"is_followed": live is not None, "by_day": by_day})


def samples(asked: Asked) -> dict[str, Any]:
    """Return the last hour as charts take it."""
    return as_columns(asked.site.sampler.since())


def changes(asked: Asked) -> Iterator[list[PageChange]]:
    """Yield the figures each time the job has written them, and the samples since.

    A page that was shown before the job had begun is told when it has, since it has no charts of it.
    """
    seen: tuple[int, str] | None = (-1, "")
    since_s = max((sample.time_s for sample in asked.site.sampler.since()), default=0)
    while True:
        live = read_live(asked.site.job.checkpoint)
        news: list[PageChange] = []
        if live is not None and asked.named("followed") == "no":
            news.append(PageChange(event="begun"))
        state = (live.data["written_ms"], live.state(epoch_ms())) if live is not None else None
        if state != seen:
            seen = state
            news.append(PageChange(part("now-live.html", **_values(asked.site, live))))
        samples = asked.site.sampler.since(since_s)
        if samples:
            since_s = samples[-1].time_s
            news.append(PageChange(event="samples", data=as_columns(samples)))
        yield news


def _values(site: Site, live: Live | None) -> dict[str, Any]:
    """Return what the changing part of the page shows."""
    now_ms = epoch_ms()
    fills = [fill.words for fill in read_fills(site.job.checkpoint)]
    if live is None:
        folder = kept_results(site.job)
        found = {} if folder is None else totals(folder)
        line = state_line(site.conf, site.job.checkpoint, None, now_ms)
        return {
            "faults": [] if found else [line],
            "remark": "",
            "is_live": False,
            "line": recorded_line(found) if found else "",
            "cards": _recorded_cards(found) if found else [],
            "alerts": _recorded_alerts(site) if found else [],
            **_recorded_rules(site),
            "fills": fills,
        }
    data = live.data
    return {
        "is_live": True,
        "faults": faults_of(site.conf, site.job.checkpoint, live, now_ms),
        "remark": "" if pace_state(data) == FALLS_BEHIND else pace_line(data),
        "line": state_line(site.conf, site.job.checkpoint, live, now_ms),
        "cards": _cards(data),
        "alerts": [alert | {"why": crossed(alert)} for alert in data["alerts"][:_LATEST]],
        "rules": data["rules"]["rules"],
        "rules_version": data["rules"]["version"],
        "fills": fills,
    }


def _recorded_alerts(site: Site) -> list[dict[str, Any]]:
    """Return the latest alerts of a job that says nothing of itself."""
    rows = list_alerts(site.results, AlertFilter(), None, given_findings(site.job), _LATEST).rows
    return [row | {"written_ms": row["event_time"]} for row in rows]


def _recorded_rules(site: Site) -> dict[str, Any]:
    """Return the rules that evaluated the last batch, as a running job describes them."""
    rule_set = site.rule_set
    if rule_set is None:
        return {"rules": [], "rules_version": None}
    rules = [rule for rule in rule_set.rules if rule.state != "DELETE"]
    described = [{"rule_id": rule.rule_id, "state": rule.state, "sentence": rule.sentence()} for rule in rules]
    return {"rules": described, "rules_version": rule_set.version}


def _cards(data: dict[str, Any]) -> list[Card]:
    """Return the figures of a job that runs, or ran last."""
    minute, total = data["minute"], data["totals"]
    delay, batch, lag = minute["latency_ms"], minute["batch_ms"], data["lag"]
    counts = {name: sum(group[name] for group in data["groups"].values()) for name in _GROUP_COUNTS}
    late = counts["late"] + counts["too_late"]
    unjudged = sum(group.get("unjudged", 0) for group in data["groups"].values())
    beside = counted(total["malformed"], "dead letter") + (
        f" · {unjudged:,} not judged, in all groups" if unjudged else ""
    )
    return [
        Card("Events a second", f"{minute['events_per_s']:,.0f}", "lag not known" if lag is None else f"lag {lag:,}"),
        Card("Delay", f"{delay['p50']:,} ms" if delay else "none", quantiles_text(delay) or "not known of this source"),
        Card("Alerts in the last minute", f"{minute['alerts']:,}", f"{total['alerts']:,} since the start"),
        Card(
            "Batch",
            f"{batch['p50']:,} ms" if batch else "none",
            f"{minute['batches']:,} in the last minute" + (f", at most {batch['max']:,} ms" if batch else ""),
        ),
        Card("Events since the start", f"{total['events']:,}", beside),
        Card(
            "Late, in all groups",
            f"{late:,}",
            f"{counts['too_late']:,} too late · {counts['collisions_not_kept']:,} collisions not kept",
        ),
        Card("Held back", f"{total.get('held_alerts', 0):,}", "by policies and snoozes, since the start"),
        Card("Repeats", f"{counts['duplicates']:,}", f"in all groups · {counts['no_key']:,} without a key"),
    ]


def _recorded_cards(found: dict[str, int]) -> list[Card]:
    """Return the figures of all batches that are recorded."""
    return [
        Card("Events", f"{found['events']:,}", f"{found['batches']:,} batches, the last is {found['last']:,}"),
        Card("Alerts", f"{found['alerts']:,}", f"{found['held_alerts']:,} held back"),
        Card("Late, in all groups", f"{found['late'] + found['too_late']:,}", f"{found['too_late']:,} too late"),
        Card(
            "Not evaluated",
            f"{found['dead_letters']:,}",
            f"dead letters · {found['collisions_not_kept']:,} collisions not kept",
        ),
    ]


def _by_day(site: Site) -> dict[str, list[int]]:
    """Return the alerts a day of all rules, for a chart; empty where none are recorded."""
    folder = kept_results(site.job)
    found = {} if folder is None else alerts_by_day(folder / ALERTS, _DAYS)
    days = sorted({day for of_rule in found.values() for day in of_rule})
    if not days:
        return {}
    every = range(days[0], days[-1] + 1)
    return {
        "time_s": [day * 86_400 for day in every],
        "alerts": [sum(of_rule.get(day, 0) for of_rule in found.values()) for day in every],
    }
