"""The command `buckets`: its subcommands, and how it reports errors: in one line, with a non-zero exit code."""

import signal
import sys
from typing import Annotated

import typer

from buckets.cli.commands import Commands
from buckets.cli.console import Terminated, Told, echo
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, INTERRUPTED, MISUSED
from buckets.printable import one_line
from buckets.version import versions_text

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False, rich_markup_mode=None)


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
