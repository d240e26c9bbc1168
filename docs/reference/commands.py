"""The page of the command line: each command with its arguments and options, as its `--help` has them."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from buckets.cli.commands import app
from buckets.exit_codes import DONE, FAILED, INTERRUPTED, MISUSED
from docs.reference.markdown import code, fenced, sentence, table

_EXAMPLES = re.compile(r"^Examples?:\n(.*?)(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


def leaves() -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, by its words, as in `buckets rules check`."""
    yield from _below("buckets", typer.main.get_command(app))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name in command.commands:
            yield from _below(f"{words} {name}", command.get_command(None, name))
    else:
        yield words, command


def page() -> str:
    """Return the page."""
    exits = table(
        ("Exit code", "Meaning"),
        [
            (code(DONE), "All is well, or a job or an audit was stopped by a signal."),
            (code(FAILED), "Something was found or has failed; one line says what, where, the limit and what to do."),
            (code(MISUSED), "Wrong options, or a configuration that is not valid."),
            (code(INTERRUPTED), "Interrupted before it was done; nothing is left half done."),
        ],
    )
    parts = [
        "# Command line\n",
        "Every command has `--help`. `buckets --version` names the versions, and `buckets --install-completion` "
        "teaches your shell to complete commands and options.\n",
        exits,
    ]
    return "\n".join([*parts, *(_section(words, command) for words, command in leaves())])


def _section(words: str, command: Any) -> str:
    text = inspect.cleandoc(command.help or "").replace("\b", "").replace("\f", "")
    examples = _EXAMPLES.search(text)
    said = _EXAMPLES.sub("", text).strip()
    usage = " ".join(filter(None, [words, *map(_argument, command.params), "[OPTIONS]"]))
    rows = [
        (_names(parameter), _meaning(parameter), _default(parameter))
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
    ]
    parts = [f"## `{words}`\n", f"{said}\n", fenced(usage)]
    if rows:
        parts.append(table(("Argument or option", "Meaning", "Default"), rows))
    if examples is not None:
        parts.append(fenced(inspect.cleandoc("\n" + examples[1]), "sh"))
    return "\n".join(parts)


def _argument(parameter: Any) -> str:
    """Return how an argument is written in the usage; nothing for an option."""
    if parameter.param_type_name != "argument":
        return ""
    name: str = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return code(parameter.metavar or parameter.name.upper())
    return " ".join(code(name) for name in (*parameter.opts, *parameter.secondary_opts))


def _meaning(parameter: Any) -> str:
    return sentence(getattr(parameter, "help", None) or "") + (" Required." if parameter.required else "")


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required or value in (None, (), [], "") or callable(value) or isinstance(value, bool):
        return ""
    return code(value)
