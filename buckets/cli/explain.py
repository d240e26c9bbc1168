"""The command `buckets explain`: an explanation as text, as a page with charts, or as JSON."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from buckets.archive.history import History
from buckets.cli.console import Terminal, echo, echo_report
from buckets.cli.options import ArchivedConf, AsJson, read_option
from buckets.cli.result_file import check_result_files, job_inputs, write_result
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.history.explain.explanation import Explanation, FeatureThen
from buckets.history.explain.explanation import as_json as to_json
from buckets.history.explain.words import explained, number_text
from buckets.moment import exact_time_text, parse_moment_ms
from buckets.pages.page import render
from buckets.printable import one_line
from buckets.questions.key_events import explained_alert, explainer
from buckets.stores.location import location

_MARKS = {"true": "yes", "false": "no", "unknown": "?", "uncertain": "?"}
_SETTLED = {"alert": "bold red", "did not fire": "bold", "not evaluated": "bold"}


def show(explanation: Explanation) -> None:
    """Print an explanation."""
    console = Terminal()

    def line(text: str, indent: int = 0, style: str = "") -> None:
        console.print(Padding(Text(one_line(text), style=style), (0, 0, 0, indent)))

    def section(title: str, texts: Iterable[tuple[str, int]]) -> None:
        console.print()
        line(title, style="bold")
        for text, depth in texts:
            line(text, 2 + 2 * depth)

    shown = explained(explanation)
    line(shown["headline"], style=_SETTLED.get(explanation.outcome, "bold yellow"))
    for text in (*shown["reasons"], *shown["event"]):
        line(text, 2)
    if shown["rule"] is not None:
        rule = [*shown["rule"], *([f"its windows: {shown['warmth']}"] if shown["warmth"] else [])]
        section(f"The rule in version {shown['ruleset_version']} of the rules", ((text, 0) for text in rule))
    if shown["policy"]:
        section("Alert policies", ((text, 0) for text in shown["policy"]))
    if shown["parts"]:
        parts = ((f"{_MARKS[part['truth']]:>3}  {part['text']}", part["depth"]) for part in shown["parts"])
        section("The condition", parts)
    for feature, lines, _ in shown["features"]:
        section(f"{feature.name}: {feature.phrase}", ((text, 0) for text in lines))
        if feature.entries:
            console.print(_entries(feature))
    for note in shown["notes"]:
        console.print()
        line(note)


def _entries(feature: FeatureThen) -> Padding:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    has_so_far = any(entry.so_far is not None for entry in feature.entries)
    table.add_column("Time (UTC)", no_wrap=True)
    table.add_column("Event", overflow="fold")
    table.add_column(feature.unit or "", justify="right", overflow="fold")
    if has_so_far:
        table.add_column("So far", justify="right", overflow="fold")
    table.add_column("Batch", justify="right")
    table.add_column("")
    half = len(feature.entries) // 2
    for index, entry in enumerate(feature.entries):
        if feature.left_out and index == half:
            table.add_row(f"… {feature.left_out:,} more (--all)")
        note = entry.note if entry.counts or not entry.note else f"- {entry.note}"
        numbers = [number_text(entry.value), *([number_text(entry.so_far)] if has_so_far else [])]
        cells = [exact_time_text(entry.time_ms), entry.event_id, *numbers, f"{entry.batch_id}", note]
        style = "red" if entry == feature.over else "" if entry.counts else "dim"
        table.add_row(*map(one_line, cells), style=style)
    return Padding(table, (0, 0, 0, 2))


def page_of(explanation: Explanation) -> str:
    """Return the page, in one file that needs no other."""
    return render("explain.html", **explained(explanation))


_SHOWN, _SHOWN_AS_DATA = 20, 1_000  # How many events of a window are shown as text, and how many as data or on a page


def explain(
    conf: ArchivedConf,
    alert_id: Annotated[str | None, typer.Argument(metavar="[ALERT_ID]", help="The alert to explain.")] = None,
    event: Annotated[str | None, typer.Option(help="Instead of an alert: the id of an event.")] = None,
    rule: Annotated[str | None, typer.Option(help="The rule to explain at that event.")] = None,
    at: Annotated[str | None, typer.Option(help="When the event happened, if several share its id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All events of each window, however many.")] = False,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with a chart to this file.")] = None,
) -> int:
    """Explain an alert, or why a rule raised none at an event.

    ALERT_ID may be a unique beginning of an id, as `buckets alerts` shows it.
    Shows the rule and the lists as they were, each feature with the events in
    its window as they had arrived by then and its value recomputed from them,
    and each part of the condition with its distance to the limit. The exit
    code is 1 if a recomputed value differs from the recorded one.

    Examples:
      buckets explain conf/demo.yaml 5f0c2a1d
      buckets explain conf/demo.yaml --event t000000123 --rule payer-24h
      buckets explain conf/demo.yaml --event t000000123 --rule payer-24h --json --all
      buckets explain conf/demo.yaml 5f0c2a1d --html why.html
    """
    if (alert_id is None) == (event is None):
        message = "give either ALERT_ID, an alert, or --event with --rule; `buckets explain --help` has examples"
        raise BucketsError(message)
    if (event is None) != (rule is None):
        message = "--event and --rule go together: which rule is to be explained at which event"
        raise BucketsError(message)
    if at is not None and event is None:
        message = "--at goes with --event; leave it out"
        raise BucketsError(message)
    most = None if everything else _SHOWN_AS_DATA if as_json or html is not None else _SHOWN
    job = load_job(conf)
    check_result_files({"--html": html}, job_inputs(conf, job))
    with Terminal(stderr=True).status("Reading what has arrived…"):
        history = History.open(job)
    if event is None or rule is None:
        explanation = explained_alert(history, str(alert_id), most)
    else:
        at_ms = None if at is None else read_option("--at", at, parse_moment_ms)
        explanation = explainer(history, most).event(event, rule, at_ms)
    if html is not None:
        write_result("--html", html, page_of(explanation))
    if as_json:
        echo_report(to_json(explanation))
    elif html is None:
        show(explanation)
    else:
        echo(f"written to {location(str(html))}")
    return 1 if explanation.is_faulty else 0
