"""The command `buckets`: its subcommands, and how it reports errors: in one line, with a non-zero exit code."""

import signal
import sys
from typing import Annotated

import typer

from buckets.cli.alerts import alerts
from buckets.cli.archive import archive
from buckets.cli.audit import audit
from buckets.cli.backtest.main import backtest
from buckets.cli.check import check
from buckets.cli.console import Terminated, Told, echo
from buckets.cli.demo.demo_kafka import demo_kafka
from buckets.cli.demo.main import demo
from buckets.cli.evaluate import evaluate
from buckets.cli.explain.main import explain
from buckets.cli.features import features
from buckets.cli.generate import generate
from buckets.cli.init import init
from buckets.cli.kafka import kafka_app
from buckets.cli.lists import lists_app
from buckets.cli.mcp import mcp
from buckets.cli.metrics_files import metrics_app
from buckets.cli.open_console import console
from buckets.cli.replay import replay
from buckets.cli.rules.main import rules_app
from buckets.cli.rules.snooze import snooze
from buckets.cli.run import run
from buckets.cli.schema import schema_app
from buckets.cli.size import size
from buckets.cli.state.main import state_app
from buckets.cli.verdicts.verdict import verdict
from buckets.cli.verdicts.verdict_list import verdicts
from buckets.cli.watch import watch
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, INTERRUPTED, MISUSED
from buckets.printable import one_line
from buckets.version import versions_text

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
_COMMANDS = (
    init, run, check, size, audit, archive, replay, explain, evaluate, backtest, features, alerts, generate, demo,
    demo_kafka, watch, console, mcp, snooze, verdict, verdicts,
)  # fmt: skip
for _command in _COMMANDS:
    app.command()(_command)
app.add_typer(rules_app, name="rules")
app.add_typer(lists_app, name="lists")
app.add_typer(state_app, name="state")
app.add_typer(kafka_app, name="kafka")
app.add_typer(schema_app, name="schema")
app.add_typer(metrics_app, name="metrics")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        echo(versions_text())
        raise typer.Exit


@app.callback()
def _of_all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Exact sliding windows for every single transaction, on Apache Spark."""


def main() -> None:
    """Run the command line and exit; being asked to end is an interrupt, as Ctrl-C is."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(exit_code())


def _terminate(*_: object) -> None:
    raise Terminated


def exit_code() -> int:
    """Run the command line; returns one of `buckets.exit_codes`."""
    try:
        result = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        if result == INTERRUPTED:  # So typer says of an interrupt.
            raise KeyboardInterrupt
    except BucketsError as error:
        echo(f"error: {error.message}", err=True)
        return error.exit_code
    except Told as told:
        return told.code
    except typer.TyperException as error:
        echo(one_line(f"error: {error.format_message()}"), err=True)
        return MISUSED
    except (typer.Abort, KeyboardInterrupt):
        echo("interrupted: nothing is left half done", err=True)
        return INTERRUPTED
    return result if isinstance(result, int) else DONE
