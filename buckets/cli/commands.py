"""All commands by name, each imported when it is asked for: none waits for what others need."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

MODULES = {
    "init": "buckets.cli.init",
    "run": "buckets.cli.run",
    "check": "buckets.cli.check",
    "size": "buckets.cli.size",
    "audit": "buckets.cli.audit",
    "archive": "buckets.cli.archive",
    "replay": "buckets.cli.replay",
    "explain": "buckets.cli.explain.main",
    "evaluate": "buckets.cli.evaluate",
    "backtest": "buckets.cli.backtest.main",
    "features": "buckets.cli.features",
    "alerts": "buckets.cli.alerts",
    "generate": "buckets.cli.generate",
    "demo": "buckets.cli.demo.main",
    "demo-kafka": "buckets.cli.demo.demo_kafka",
    "watch": "buckets.cli.watch",
    "console": "buckets.cli.open_console",
    "mcp": "buckets.cli.mcp",
    "snooze": "buckets.cli.rules.snooze",
    "verdict": "buckets.cli.verdicts.verdict",
    "verdicts": "buckets.cli.verdicts.verdict_list",
    "rules": "buckets.cli.rules.main",
    "lists": "buckets.cli.lists",
    "state": "buckets.cli.state.main",
    "kafka": "buckets.cli.kafka",
    "schema": "buckets.cli.schema",
    "metrics": "buckets.cli.metrics_files",
}
"""Where each command is: a function of its name, or what has the commands of several, as in `rules_app`."""


class Commands(TyperGroup):
    """The commands of `buckets`, in the order of `--help`."""

    def __init__(self, **attributes: Any) -> None:
        """Take what typer says of the group."""
        super().__init__(**attributes)
        self.commands = _Imported(self.commands)


class _Imported(MutableMapping[str, Any]):
    """Commands by name, made of their modules the first time."""

    def __init__(self, made: MutableMapping[str, Any]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, MODULES[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**MODULES, **self._made})

    def __len__(self) -> int:
        return len({**MODULES, **self._made})


def _command(name: str, module_name: str) -> Any:
    """Return a command, as typer makes it of its function, or of its commands."""
    module, word = import_module(module_name), name.replace("-", "_")
    several = getattr(module, f"{word}_app", None)
    if several is not None:
        command: Any = typer.main.get_group(several)
        command.name = name
        return command
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(getattr(module, word))
    return typer.main.get_command(alone)
