"""The command `buckets`: all commands by name, each imported only when it runs; `--help` reads their files instead."""

import ast
import inspect
import re
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from buckets.cli.console import Terminated, echo
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, INTERRUPTED, MISUSED
from buckets.printable import one_line
from buckets.version import versions_text

Homes = Mapping[str, "str | Several"]
"""By the name of a command, where its function is: module and name; or the commands below it."""


class Several(NamedTuple):
    """Commands below a command."""

    help: str
    homes: Homes


COMMANDS: Homes = {
    "init": "generate.init",
    "run": "run.run",
    "check": "check.check",
    "size": "size.size",
    "audit": "audit.audit",
    "archive": "audit.archive",
    "replay": "replay.replay",
    "explain": "explain.explain",
    "evaluate": "evaluate.evaluate",
    "backtest": "backtest.backtest",
    "features": "features.features",
    "alerts": "alerts.alerts",
    "generate": "generate.generate",
    "demo": "demo.demo.demo",
    "demo-kafka": "demo.demo_kafka.demo_kafka",
    "watch": "watch.watch",
    "console": "servers.console",
    "serve": "servers.serve",
    "mcp": "servers.mcp",
    "snooze": "rules.change.snooze",
    "verdict": "verdicts.verdict",
    "verdicts": "verdicts.verdicts",
    "rules": Several(
        "Check, read and change rules.",
        {
            "schema": "rules.show.file_schema",
            "show": "rules.show.show",
            "apply": "rules.change.apply",
            "history": "rules.change.history",
            "export": "rules.change.export",
            "import": "rules.show.import_rules",
            "list": "rules.change.list_rules",
            "compare": "rules.compare.compare_rules",
            "quality": "rules.quality.rules_quality",
            "check": "rules.check.check",
            "pause": "rules.change.pause",
            "resume": "rules.change.resume",
            "shadow": "rules.change.shadow",
            "promote": "rules.change.promote",
            "diff": "rules.compare.diff",
            "rollback": "rules.change.rollback",
            "delete": "rules.change.delete",
            "clear-state": "rules.change.clear_state",
            "clear-all-state": "rules.change.clear_all_state",
            "delete-all": "rules.change.delete_all",
            "test": "rules.tests.run_tests",
        },
    ),
    "lists": Several(
        "Show the lists of a job, and change entries of those in topics.",
        {"show": "lists.show", "put": "lists.put", "remove": "lists.remove"},
    ),
    "state": Several(
        "Read the state of a job, and carry it over.",
        {
            "export": "state.export_command",
            "import": "state.import_command",
            "stats": "state.stats",
            "show": "state.show",
        },
    ),
    "kafka": Several(
        "Run a Kafka broker on this machine, make topics, and send events to them.",
        {
            "send": "kafka.send",
            "start": "kafka.start",
            "stop": "kafka.stop",
            "status": "kafka.status",
            "topics": "kafka.topics",
        },
    ),
    "schema": Several(
        "Make an event schema of one in Avro or Protobuf.",
        {"import": "schema.import_schema"},
    ),
    "metrics": Several(
        "Print a dashboard for Grafana, and alert rules for Prometheus.",
        {"dashboard": "servers.dashboard", "rules": "servers.rules"},
    ),
}


class Commands(TyperGroup):
    """Commands by name, in the order of `--help`; each is imported when it is asked for."""

    def __init__(self, homes: Homes = COMMANDS, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._homes = homes
        self.commands.update({name: TyperCommand(name) for name in homes})  # Only their names are used

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, as typer makes it of its function, or those below it; None where there is none."""
        home = self._homes.get(cmd_name)
        if home is None:
            return None
        if isinstance(home, Several):
            return Commands(home.homes, name=cmd_name, help=home.help, rich_markup_mode=None)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        module, _, name = home.rpartition(".")
        function = getattr(import_module(f"buckets.cli.{module}"), name)
        words = re.sub(r"^(?=Examples?:$)", "\b\n", inspect.getdoc(function) or "", flags=re.MULTILINE)
        alone.command(cmd_name, help=words)(function)
        return typer.main.get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with the first sentence about it."""
        described = {name: TyperCommand(name, help=self._words(name, home)) for name, home in self._homes.items()}
        TyperGroup(commands=dict(described)).format_commands(ctx, formatter)

    def _words(self, name: str, home: "str | Several") -> str | None:
        """Return what a command says of itself, read from its file; a function that another one makes is imported."""
        if isinstance(home, Several):
            return home.help
        module, _, function = home.rpartition(".")
        file = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return ast.get_docstring(node)
        words: str | None = self.get_command(None, name).help
        return words


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
    except SystemExit as ended:  # A command has said itself why, and what it ends with.
        if not isinstance(ended.code, int):
            raise
        return ended.code
    except typer.TyperException as error:
        echo(one_line(f"error: {error.format_message()}"), err=True)
        return MISUSED
    except (typer.Abort, KeyboardInterrupt):
        echo("interrupted: nothing is left half done", err=True)
        return INTERRUPTED
    return result if isinstance(result, int) else DONE
