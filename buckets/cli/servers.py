"""The commands `buckets mcp` and `buckets console`: tools for an assistant, and pages for people."""

from typing import Annotated

import typer

from buckets.cli.console import Terminal
from buckets.cli.options import JobConf, login_name, read_option
from buckets.config.settings import DEFAULT_PORT
from buckets.extras import extra
from buckets.rules.change import short_text

Person = Annotated[str | None, typer.Option("--author", help="Whose assistant it is; your login name by default.")]
NoDrafts = Annotated[bool, typer.Option("--read-only", help="No drafts may be proposed.")]


def mcp(conf: JobConf, author: Person = None, read_only: NoDrafts = False) -> None:
    """Serve an assistant on standard input and output, by the Model Context Protocol.

    An assistant starts this command itself; nothing is printed. It reads what
    the commands read, for a job that runs or has run, and does not affect the
    job; like `buckets explain`, it first archives what has arrived. It can
    change nothing except save a rule as a draft, with your name and its own,
    which only people can release. It needs no Spark.

    \b
    Examples:
      buckets mcp conf/demo.yaml
      buckets mcp conf/kafka.yaml --author ann
      buckets mcp conf/kafka.yaml --read-only
    """  # noqa: D301 - click needs the backspace itself
    with extra("mcp", "an assistant"):
        from buckets.mcp.server import serve

    serve(conf, login_name() if author is None else read_option("--author", author, short_text), read_only)


Host = Annotated[str | None, typer.Option(help="The address to listen on; `console.host`, or this machine only.")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65_535, help=f"The port to listen on; `console.port`, or {DEFAULT_PORT}.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Nobody may change anything, whatever their role.")]


def console(conf: JobConf, host: Host = None, port: Port = None, read_only: ReadOnly = False) -> None:
    """Open a console for a job that runs, or has run: pages to look at it and to work with its alerts and rules.

    It reads what the commands read, does not affect the job, and changes only
    what commands change, with your name and reason. It needs no Spark. On any
    address but this machine's own it asks for the `token` of `console`.

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
