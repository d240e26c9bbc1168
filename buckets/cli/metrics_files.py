"""The commands `buckets metrics dashboard` and `rules`: files for Grafana and Prometheus."""

from typing import Annotated

import typer

from buckets.cli.console import echo
from buckets.cli.options import read_option
from buckets.duration import format_duration, parse_duration_ms
from buckets.errors import BucketsError
from buckets.metrics.alert_rules import LONGEST_HOLD_MS, Limits, rule_file
from buckets.resources import resource

_USUAL = Limits()


def dashboard() -> None:
    """Print a dashboard for Grafana 11.6 and later, as a file to import.

    \b
    Example:
      buckets metrics dashboard > buckets-dashboard.json
    """  # noqa: D301 - click needs the backspace itself
    echo(resource("metrics/dashboard.json").read_text(encoding="utf-8"), nl=False)


def rules(
    lag: Annotated[int, typer.Option(min=0, help="How many messages may wait.")] = _USUAL.lag,
    delay: Annotated[str, typer.Option(help="How long 99 of 100 events may wait for results.")] = format_duration(
        _USUAL.delay_ms
    ),
    silence: Annotated[str, typer.Option(help="How long there may be no result while work waits.")] = format_duration(
        _USUAL.silence_ms
    ),
    dead_letters: Annotated[
        float, typer.Option(min=0, max=1, help="Which share of rows may be invalid.")
    ] = _USUAL.dead_letters,
    hold: Annotated[str, typer.Option(help="How long something may be wrong before an alert.")] = format_duration(
        _USUAL.hold_ms
    ),
    scrape_job: Annotated[str, typer.Option(help="The job_name under which Prometheus scrapes.")] = _USUAL.scrape_job,
    runbook: Annotated[
        str, typer.Option(metavar="URL", help="Where docs/pages/alerts.md can be read.")
    ] = _USUAL.runbook,
) -> None:
    """Print alert rules for Prometheus; what each means is in docs/pages/alerts.md.

    \b
    Examples:
      buckets metrics rules > buckets-alerts.yaml
      buckets metrics rules --lag 20000 --delay 1s --hold 2m
    """  # noqa: D301 - click needs the backspace itself
    if not scrape_job or '"' in scrape_job or "\\" in scrape_job or not scrape_job.isprintable():
        message = f"--scrape-job: {scrape_job!r} is not a job_name; use letters, digits, - and _"
        raise BucketsError(message)
    limits = Limits(
        lag=lag,
        delay_ms=_positive_ms("--delay", delay),
        silence_ms=_positive_ms("--silence", silence),
        dead_letters=dead_letters,
        hold_ms=_positive_ms("--hold", hold),
        scrape_job=scrape_job,
        runbook=runbook,
    )
    echo(rule_file(limits), nl=False)


def _positive_ms(option: str, text: str) -> int:
    duration_ms = read_option(option, text, parse_duration_ms)
    if not 0 < duration_ms <= LONGEST_HOLD_MS:
        message = f"{option}: {text} is not between 1ms and {format_duration(LONGEST_HOLD_MS)}"
        raise BucketsError(message)
    return duration_ms
