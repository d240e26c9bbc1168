"""The command `buckets check`: whether a configuration is right, and whether all that it names can be reached."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from buckets.cli.console import Terminal, TextTable, echo_report
from buckets.cli.options import AsJson
from buckets.config.job import Answer, check_configuration
from buckets.exit_codes import DONE, FAILED
from buckets.preflight.connections import check_connections
from buckets.printable import counted


def check(
    conf: Annotated[Path, typer.Argument(metavar="CONF", help="A configuration, as in conf/demo.yaml.")],
    offline: Annotated[bool, typer.Option("--offline", help="Check the files only; connect to nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check a configuration, and connect to what it names; nothing is started or written.

    Settings, event schema, rules and lists are read; then folders, tables,
    checkpoint, brokers and topics are checked, each for a few seconds at most.
    Every fault is reported with its file and line, and the exit code is 1.
    Nothing is connected to if the configuration is not valid.

    Examples:
      buckets check conf/demo.yaml
      buckets check conf/kafka.yaml --json
      buckets check conf/kafka.yaml --offline
    """
    job, answers = check_configuration(conf)
    if job is not None and not offline:
        with Terminal(stderr=True).status("Connecting…") as status:
            answers += check_connections(conf, job, lambda thing: status.update(f"{thing}…"))
    is_ok = not any(answer.faults for answer in answers)
    if as_json:
        things = [{"ok": not answer.faults, **asdict(answer)} for answer in answers]
        echo_report({"ok": is_ok, "connected": job is not None and not offline, "things": things})
    else:
        _print(answers, is_connected=job is not None)
    return DONE if is_ok else FAILED


def _print(answers: list[Answer], is_connected: bool) -> None:
    table = TextTable(None, ("Thing", "=", "What was found"))
    for answer in answers:
        state = Text("wrong", "bold red") if answer.faults else Text("ok", "green")
        table.add_row(answer.thing, state, "\n".join(answer.faults) or f"{answer.note} ({_shown(answer.where)})")
    terminal = Terminal()
    terminal.print(table)
    faults = sum(len(answer.faults) for answer in answers)
    if faults:
        rest = "" if is_connected else "; what the configuration names was not looked at"
        terminal.say(f"{counted(faults, 'fault')}{rest}")


def _shown(where: str) -> str:
    """Return a path as it is reached from here, if that is shorter; anything else as it is."""
    if "://" in where:
        return where
    return min(where, os.path.relpath(where), key=len) if os.sep in where else where
