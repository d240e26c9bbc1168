"""The command `buckets console`: pages in a browser to look at a job, to judge its alerts and to change its rules."""

from typing import Annotated

import typer

from buckets.cli.console import Terminal
from buckets.cli.options import JobConf, login_name
from buckets.config.settings import DEFAULT_PORT
from buckets.extras import extra

Host = Annotated[str | None, typer.Option(help="The address to listen on; `console.host`, or this machine only.")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65_535, help=f"The port to listen on; `console.port`, or {DEFAULT_PORT}.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Nobody may change anything, whatever their role.")]


def console(conf: JobConf, host: Host = None, port: Port = None, read_only: ReadOnly = False) -> None:
    """Open a console for a job that runs, or has run: pages to look at it and to work with its alerts and rules.

    It reads what the commands read, takes nothing from the job, and changes
    only what commands change, with your name and reason. It needs no Spark.
    On another address than this machine's own it asks for the `token` of `console` in the configuration.

    \b
    Examples:
      buckets console conf/demo.yaml
      buckets console conf/kafka.yaml --port 9000
      buckets console conf/kafka.yaml --host 0.0.0.0 --read-only
    """  # noqa: D301 - click needs the backspace itself
    with extra("console", "the console"):
        from buckets.console.app import open_console

    opened = open_console(conf, login_name(), host, port, read_only)
    Terminal().say(f"the console of {conf} is at {opened.address}; Ctrl-C ends it")
    opened.run()
