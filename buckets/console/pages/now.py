"""The page of what the job is doing now: its figures, the last hour as charts, and what is wrong in one line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from buckets.backfill.fill_chunks import read_fills
from buckets.clock import epoch_ms
from buckets.config.job import kept_results
from buckets.console.view import Asked, PageChange, Site, View, part
from buckets.monitor.live import Live, read_live
from buckets.monitor.pace import as_columns
from buckets.monitor.words import FALLS_BEHIND, faults_of, pace_line, pace_state, quantiles_text, state_line
from buckets.numbers.fixed_point import short_percent_text
from buckets.outputs.columns import ALERTS
from buckets.outputs.messages import crossed
from buckets.outputs.recorded_outputs import alerts_by_day
from buckets.pages.page import round_times
from buckets.printable import counted
from buckets.questions.listed_alerts import AlertFilter, given_findings, list_alerts, recorded_line, totals
from buckets.verdicts.verdict import ShareInterval

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
            "Late events",
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
        Card("Late events", f"{found['late'] + found['too_late']:,}", f"{found['too_late']:,} too late"),
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


_WIDTH, _HEIGHT = 90, 22


def bars(numbers: Sequence[int]) -> list[dict[str, float]]:
    """Return numbers as bars, the greatest as the highest; none if all are zero."""
    most = max(numbers, default=0)
    if not most:
        return []
    step = _WIDTH / len(numbers)
    heights = [max(number / most * _HEIGHT, 1.0 if number else 0.0) for number in numbers]
    return [
        {
            "x": round(at * step, 2),
            "y": round(_HEIGHT - high, 2),
            "width": round(step * 0.8, 2),
            "height": round(high, 2),
        }
        for at, high in enumerate(heights)
        if high
    ]


def _bar(**sides: float) -> dict[str, float]:
    return {name: round(side, 2) for name, side in sides.items()}


def interval(share: ShareInterval | None) -> dict[str, Any] | None:
    """Return a share as text and as a drawing; None of none."""
    if share is None:
        return None
    return {
        "text": short_percent_text(share.share),
        "range": f"{short_percent_text(share.low)} to {short_percent_text(share.high)}",
        "from": round(share.low * _WIDTH, 1),
        "width": round((share.high - share.low) * _WIDTH, 1),
        "at": round(share.share * _WIDTH, 1),
    }


_LEFT, _TOP, _WIDE, _HIGH = 40, 16, 480, 150
"""Of the chart of a sweep, in units of its drawing: what is left of and above its columns, and these together."""


def sweep_chart(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Place the variants of a sweep of one number: alerts as columns, precision and recall as lines; None of others."""
    variants = answer["variants"]
    if len(answer["sweeps"]) != 1 or len(variants) < 2:
        return None
    most = max(max(variant["alerts"] for variant in variants), 1)
    step = _WIDE / len(variants)
    columns, lines = [], {"precision": list[str](), "recall": list[str]()}
    for at, variant in enumerate(variants):
        x, height = _LEFT + (at + 0.5) * step, variant["alerts"] / most * _HIGH
        label = "; ".join(str(value) for value in variant["values"].values())
        column = _bar(x=x, left=x - step * 0.35, y=_TOP + _HIGH - height, width=step * 0.7, height=height)
        columns.append({**column, "alerts": variant["alerts"], "label": label, "is_now": variant["as_written"]})
        for name, points in lines.items():
            if variant.get(name) is not None:
                points.append(f"{x:.1f},{_TOP + _HIGH * (1 - variant[name]):.1f}")
    return {
        "columns": columns,
        "lines": {name: " ".join(points) for name, points in lines.items() if len(points) > 1},
        "width": _LEFT + _WIDE + 20,
        "height": _TOP + _HIGH + 24,
        "floor": _TOP + _HIGH,
        "parameter": answer["sweeps"][0]["parameter"],
    }


_LINE_LEFT, _LINE_RIGHT, _LINE_TOP, _LINE_HIGH, _WINDOW_HIGH = 80, 980, 20, 140, 20
"""Of a timeline: between which places time runs, how high events are drawn, and how high each window."""


def timeline(events: Sequence[Mapping[str, Any]], windows: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    """Place events over time, the value of each as its height, and windows below them as bars."""
    times = [event["time_ms"] for event in events]
    first, last = min([*times, *(start for _, start, _ in windows)]), max(times)
    most = max([event["value"] for event in events] + [0.0]) or 1.0
    floor = _LINE_TOP + _LINE_HIGH

    def x(time_ms: int) -> float:
        share: float = (time_ms - first) / max(last - first, 1)
        return round(_LINE_LEFT + share * (_LINE_RIGHT - _LINE_LEFT), 1)

    bars_of_windows = [
        {"left": x(start), "width": max(x(end) - x(start), 2.0), "y": floor + 34 + at * _WINDOW_HIGH, "label": label}
        for at, (label, start, end) in enumerate(windows)
    ]
    return {
        "events": [
            {"x": x(event["time_ms"]), "y": round(floor - max(event["value"], 0.0) / most * _LINE_HIGH, 1)}
            for event in events
        ],
        "times": [{"at": x(time_ms), "label": label} for time_ms, label in round_times(first, last)],
        "windows": bars_of_windows,
        "most": f"{most:,.2f}",
        "floor": floor,
        "height": floor + 40 + len(windows) * _WINDOW_HIGH,
    }
