"""The command `buckets mcp`: tools by which an assistant reads a job, explains its alerts and proposes drafts."""

from typing import Annotated

import typer

from buckets.cli.options import JobConf, login_name, read_option
from buckets.extras import extra
from buckets.rules.change import short_text

Person = Annotated[
    str | None, typer.Option("--author", help="Whose assistant it is; your login name where it is left out.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="No drafts may be proposed.")]


def mcp(conf: JobConf, author: Person = None, read_only: ReadOnly = False) -> None:
    """Serve an assistant on standard input and output, by the Model Context Protocol.

    An assistant starts this command itself; nothing is printed. It reads what
    the commands read, for a job that runs or has run, and takes nothing from
    the job; like `buckets explain`, it first archives what has arrived. It
    changes nothing, but that it may save a rule as a draft, with your name
    and its own. Only people can release it. It needs no Spark.

    \b
    Examples:
      buckets mcp conf/demo.yaml
      buckets mcp conf/kafka.yaml --author ann
      buckets mcp conf/kafka.yaml --read-only
    """  # noqa: D301 - click needs the backspace itself
    with extra("mcp", "an assistant"):
        from buckets.mcp.server import serve

    serve(conf, login_name() if author is None else read_option("--author", author, short_text), read_only)
