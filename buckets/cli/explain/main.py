"""The command `buckets explain`: why an alert was raised, or why there was none."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.archive.archiving import History
from buckets.cli.console import Terminal, echo, echo_report
from buckets.cli.explain.page import page_of
from buckets.cli.explain.view import show
from buckets.cli.options import ArchivedConf, AsJson, read_option
from buckets.cli.result_file import check_result_files, job_inputs, write_result
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.explanation import as_json as to_json
from buckets.moment import parse_moment_ms
from buckets.questions.key_events import explained_alert, explainer
from buckets.stores.location import location

_SHOWN, _SHOWN_AS_DATA = 20, 1_000  # How many events of a window are shown as text, and how many as data or on a page


def explain(
    conf: ArchivedConf,
    alert_id: Annotated[str | None, typer.Argument(metavar="[ALERT_ID]", help="The alert to explain.")] = None,
    event: Annotated[str | None, typer.Option(help="Instead of an alert: the id of an event.")] = None,
    rule: Annotated[str | None, typer.Option(help="The rule to explain at that event.")] = None,
    at: Annotated[str | None, typer.Option(help="When the event happened, where several have its id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All events of each window, however many.")] = False,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with a chart to this file.")] = None,
) -> int:
    """Explain an alert, or why a rule raised none at an event.

    ALERT_ID may be the beginning of an id that no other alert has, as `buckets
    alerts` shows it. What you see: the rule and the lists as they were, each
    feature with the events in its window as they had arrived by then, its value
    computed again from them, and each part of the condition with its distance
    to the limit. The exit code is 1 where a value that is computed again
    differs from the recorded one.

    \b
    Examples:
      buckets explain conf/demo.yaml 5f0c2a1d
      buckets explain conf/demo.yaml --event t000000123 --rule payer-24h
      buckets explain conf/demo.yaml --event t000000123 --rule payer-24h --json --all
      buckets explain conf/demo.yaml 5f0c2a1d --html why.html
    """  # noqa: D301 - click needs the backspace itself
    _check_asked(alert_id, event, rule, at)
    most = None if everything else _SHOWN_AS_DATA if as_json or html is not None else _SHOWN
    job = load_job(conf)
    check_result_files({"--html": html}, job_inputs(conf, job))
    explanation = _explanation(job, alert_id, event, rule, at, most)
    if html is not None:
        write_result("--html", html, page_of(explanation))
    if as_json:
        echo_report(to_json(explanation))
    elif html is None:
        show(explanation)
    else:
        echo(f"written to {location(str(html))}")
    return 1 if explanation.is_faulty else 0


def _check_asked(alert_id: str | None, event: str | None, rule: str | None, at: str | None) -> None:
    """See that either an alert or an event and a rule are named."""
    if (alert_id is None) == (event is None):
        message = "give either ALERT_ID, an alert, or --event with --rule; `buckets explain --help` has examples"
        raise BucketsError(message)
    if (event is None) != (rule is None):
        message = "--event and --rule go together: which rule is to be explained at which event"
        raise BucketsError(message)
    if at is not None and event is None:
        message = "--at goes with --event; leave it out"
        raise BucketsError(message)


def _explanation(
    job: Job, alert_id: str | None, event: str | None, rule: str | None, at: str | None, most: int | None
) -> Explanation:
    with Terminal(stderr=True).status("Reading what has arrived…") as status:
        history = History.open(job, lambda rows: status.update(f"{rows:,} rows archived…"))
    if alert_id is not None:
        return explained_alert(history, alert_id, most)
    assert event is not None
    assert rule is not None
    at_ms = None if at is None else read_option("--at", at, parse_moment_ms)
    return explainer(history, most).event(event, rule, at_ms)
