"""An assistant: the client of the `mcp` package, which starts `buckets mcp` and talks to it over its streams."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Implementation

COMMAND = "from buckets.cli.commands import main; main()"


def command(*arguments: object, code: str = COMMAND) -> list[str]:
    """The command line that an assistant is configured with."""
    return [sys.executable, "-c", code, "mcp", *map(str, arguments)]


class Assistant:
    """A client that is connected; its calls block."""

    def __init__(self, portal: BlockingPortal, client: Client, log: Path) -> None:
        self.portal, self.client, self.log = portal, client, log

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    def call(self, tool: str, **arguments: Any) -> Any:
        """The result of a call, whatever it is."""
        return self.portal.call(partial(self.client.call_tool, tool, arguments))

    def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a call that succeeds; the client has held it against the schema."""
        result = self.call(tool, **arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    def fault(self, tool: str, **arguments: Any) -> str:
        """What a call says that fails: one line, and no traceback, also not in the log."""
        result = self.call(tool, **arguments)
        assert result.is_error
        (content,) = result.content
        assert content.text.isprintable()
        assert "Traceback" not in self.log.read_text()
        return content.text


@contextmanager
def connected(
    conf: Path, log: Path, *options: str, name: str = "tester", mode: str = "auto", code: str = COMMAND
) -> Iterator[Assistant]:
    """Connect an assistant to a job; what the server says beside the protocol goes into a log."""
    program, *arguments = command(conf, *options, code=code)
    server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    with log.open("w") as errors, start_blocking_portal() as portal:
        client = Client(
            stdio_client(server, errlog=errors), client_info=Implementation(name=name, version="1"), mode=mode
        )
        with portal.wrap_async_context_manager(client):
            yield Assistant(portal, client, log)
