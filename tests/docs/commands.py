"""Commands on pages: whether there is such a command with such options, and whether it does what stands there."""

import importlib.util
import re
import shlex
from collections.abc import Callable
from functools import cache
from typing import Any

import typer

from buckets.cli.commands import app
from tests.cli_unit.ran import Ran
from tests.docs.blocks import ROOT

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
NOT_OURS = {"curl", "cd", "git", "nohup", "pip", "source", "venv-pack"}
RUN_HERE = {
    "backtest",
    "evaluate",
    "features",
    "generate",
    "init",
    "rules check",
    "rules import",
    "rules schema",
    "rules show",
    "rules test",
    "size",
}
"""Commands that need neither Spark nor Kafka, nor a job's output."""
OF_SETTINGS = {"rules check", "rules test"}
"""Those that take no more than settings from `--conf`."""
FEWER = ["--transactions", "1000", "--overwrite"]
Run = Callable[..., Ran]


@cache
def _program() -> Any:
    return typer.main.get_command(app)


class ExampleError(AssertionError):
    """An example that is not right."""


def words_of(command: str) -> list[str]:
    """The words of a command, without comments, and without what the shell does with its output."""
    words = shlex.split(re.sub(r"\$\([^)]*\)", "SUBSTITUTED", command), comments=True)
    ends = [words.index(mark) for mark in (">", "|", "&") if mark in words]
    words = words[: min(ends, default=len(words))]
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


def check_command(command: str) -> None:
    """Check that there is such a command with such arguments and options.

    Raises:
        ExampleError: there is not.
    """
    program, *rest = words_of(command)
    program = program.removeprefix(".venv/bin/")
    if program == "buckets":
        parse(rest)
    elif program == "make":
        unknown = [word for word in rest if "=" not in word and word not in TARGETS]
        if unknown:
            message = f"make has no target {unknown[0]}"
            raise ExampleError(message)
    elif program in ("python", "pytest", "spark-submit"):
        check_paths(rest)
    elif program not in NOT_OURS:
        message = f"{program}: no program that is known here"
        raise ExampleError(message)


def check_paths(words: list[str]) -> None:
    """Check that files of the repository and modules of Python are there."""
    if words[0] == "-m" and importlib.util.find_spec(words[1]) is None:
        message = f"there is no module {words[1]}"
        raise ExampleError(message)
    gone = [word for word in words if re.fullmatch(r"(bench|jobs|tests)/[\w/.]+", word) and not (ROOT / word).exists()]
    if gone:
        message = f"there is no {gone[0]}"
        raise ExampleError(message)


def parse(words: list[str]) -> None:
    """Parse a command line of `buckets` as the program does, without running it."""
    if words in (["--version"], ["--install-completion"]):
        return
    command, path = leaf(words)
    try:
        command.make_context(" ".join(path), words[len(path) :])
    except typer.TyperException as error:
        message = f"buckets {' '.join(words)}: {error.format_message()}"
        raise ExampleError(message) from error


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and those of the words that name it."""
    command = _program()
    path: list[str] = []
    while hasattr(command, "commands"):
        name = words[len(path)] if len(path) < len(words) else ""
        if name not in command.commands:
            message = f"buckets {' '.join(words)}: no such command"
            raise ExampleError(message)
        command = command.get_command(None, name)
        path.append(name)
    return command, path


def is_run_here(command: str) -> bool:
    """Whether a command is run by these tests: it needs no job, and a reader could run it too."""
    program, *words = words_of(command)
    if program.removeprefix(".venv/bin/") != "buckets" or "--install-completion" in words:
        return False
    name = " ".join(leaf(words)[1])
    return name in RUN_HERE and ("--conf" not in words or name in OF_SETTINGS) and "--from-alert" not in words


def run_command(command: str, output: str | None, run: Run, shortened: bool) -> None:
    """Run a command, and compare what it prints with what a page shows.

    Args:
        command: the command.
        output: what a page shows; None where it shows nothing.
        run: runs words of a command line.
        shortened: whether a generated stream may be shorter than the page has it.

    Raises:
        ExampleError: it fails, or prints something else.
    """
    words = words_of(command)[1:]
    extra = FEWER if shortened and words[0] == "generate" and "--transactions" not in words else []
    ran = run(*words, *extra)
    if ran.code != 0:
        message = f"{command}: exit code {ran.code}: {ran.err}"
        raise ExampleError(message)
    if output is not None and not is_shown(output, ran.out):
        message = f"{command} prints\n{ran.out}\nand not\n{output}"
        raise ExampleError(message)


def is_shown(shown: str, printed: str) -> bool:
    """Whether a text is what was printed: a line `…` stands for any lines, and blanks at ends of lines do not count."""
    lines = [".*?" if line == "…" else re.escape(line.rstrip()) + "\n" for line in shown.rstrip("\n").split("\n")]
    without_blanks = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return re.fullmatch("".join(lines), without_blanks, re.DOTALL) is not None
