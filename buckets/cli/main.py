"""The command `buckets`: its subcommands, and how it reports errors: in one line, with a non-zero exit code."""

import sys

import typer

from buckets.cli.alerts import alerts
from buckets.cli.archive import archive
from buckets.cli.audit import audit
from buckets.cli.demo import demo
from buckets.cli.demo_kafka import demo_kafka
from buckets.cli.evaluate import evaluate
from buckets.cli.generate import generate
from buckets.cli.kafka import kafka_app
from buckets.cli.lists import lists_app
from buckets.cli.rules import rules_app
from buckets.cli.run import run
from buckets.cli.snooze import snooze
from buckets.cli.state import state_app
from buckets.cli.watch import watch
from buckets.errors import BucketsError

app = typer.Typer(
    help="Exact sliding windows for every single transaction, on Apache Spark.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(run)
app.command()(audit)
app.command()(archive)
app.command()(evaluate)
app.command()(alerts)
app.command()(generate)
app.command()(demo)
app.command()(demo_kafka)
app.command()(watch)
app.command()(snooze)
app.add_typer(rules_app, name="rules")
app.add_typer(lists_app, name="lists")
app.add_typer(state_app, name="state")
app.add_typer(kafka_app, name="kafka")

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def main() -> None:
    """Run the command line and exit."""
    sys.exit(exit_code())


def exit_code() -> int:
    """Run the command line.

    Returns:
        0, or what went wrong: 1 for bad input, 2 for wrong options, 130 when interrupted.
    """
    try:
        result = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except BucketsError as error:
        typer.echo(f"error: {error.message}", err=True)
        return FAILED
    except typer.TyperException as error:
        typer.echo(f"error: {error.format_message()}", err=True)
        return MISUSED
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("interrupted: nothing is left half done", err=True)
        return INTERRUPTED
    return result if isinstance(result, int) else 0
