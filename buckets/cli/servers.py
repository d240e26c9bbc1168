"""The commands `buckets mcp`, `console`, `serve` and `metrics`: for assistants, people, callers, and for Grafana."""

from typing import Annotated

import typer

from buckets.cli.console import Terminal, echo
from buckets.cli.options import JobConf, login_name, read_option
from buckets.config.settings import DEFAULT_PORT
from buckets.extras import extra
from buckets.resources import resource
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

    Examples:
      buckets mcp conf/demo.yaml
      buckets mcp conf/kafka.yaml --author ann
      buckets mcp conf/kafka.yaml --read-only
    """
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

    Examples:
      buckets console conf/demo.yaml
      buckets console conf/kafka.yaml --port 9000
      buckets console conf/kafka.yaml --host 0.0.0.0 --read-only
    """
    with extra("console", "the console"):
        from buckets.console.app import open_console

    opened = open_console(conf, login_name(), host, port, read_only)
    Terminal().say(f"the console of {conf} is at {opened.address}; Ctrl-C ends it")
    opened.run()


ServeHost = Annotated[str | None, typer.Option(help="The address to listen on; `serve.host`, or this machine only.")]
ServePort = Annotated[int | None, typer.Option(min=1, max=65_535, help="The port to listen on; `serve.port`, or 8485.")]


def serve(conf: JobConf, host: ServeHost = None, port: ServePort = None) -> None:
    """Answer calls about single payments of a job in milliseconds, as the job itself will score them.

    A payment that is sent to /v1/score is written to the job's topic, taken in
    with all that came before it, and answered with the alerts that the job
    raises a moment later. With mode=check it is answered what would come out,
    and nothing changes. It runs beside `buckets run`, for a job whose source is
    a topic, begins with the state of its checkpoint, and stores nothing.

    Examples:
      buckets serve conf/kafka.yaml
      buckets serve conf/kafka.yaml --port 9000
      buckets serve conf/kafka.yaml --host 0.0.0.0
    """
    with extra("serve", "the service"):
        from buckets.serve.app import open_serving

    terminal = Terminal()
    opened = open_serving(conf, host, port, terminal.say)
    opened.service.start()
    terminal.say(f"payments of {conf} are answered at {opened.address}/v1/score; Ctrl-C ends it")
    opened.run()


def dashboard() -> None:
    """Print a dashboard for Grafana 11.6 and later, as a file to import.

    Example:
      buckets metrics dashboard > buckets-dashboard.json
    """
    echo(resource("metrics/dashboard.json").read_text(encoding="utf-8"), nl=False)


def rules() -> None:
    """Print alert rules for Prometheus, as a file to adapt; what each means is in docs/pages/alerts.md.

    Example:
      buckets metrics rules > buckets-alerts.yaml
    """
    echo(resource("metrics/alert_rules.yaml").read_text(encoding="utf-8"), nl=False)
