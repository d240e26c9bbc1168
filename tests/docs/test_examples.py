"""Every example on a page of the documentation is right: it is loaded, parsed or run."""

import doctest
import json
import shlex
from pathlib import Path

import pytest

from docs.reference import commands as command_page
from tests.docs.blocks import ROOT, Block, blocks_of, commands_of, page_name, page_paths
from tests.docs.commands import ExampleError, check_command, is_run_here, run_command
from tests.docs.yaml_examples import check_yaml

SHOWN_AS_THEY_ARE = ("README.md", "tutorials/exports.md", "tutorials/your-own-file.md", "tutorials/tune-a-rule.md")
"""Pages whose commands are all run, in their order, and print what stands there."""
ON_SPARK = "guides/dataframes.md"
"""The page whose sessions of Python are run on a session of Spark, by `tests/spark/test_frames.py`."""
LANGUAGES = {"console", "csv", "ini", "json", "jsonl", "pycon", "sh", "text", "yaml"}


@pytest.mark.parametrize("path", page_paths(), ids=page_name)
def test_the_examples_of_a_page_are_right(path, folder, buckets):
    page, blocks = page_name(path), blocks_of(path.read_text(encoding="utf-8"))
    assert {block.language for block in blocks} <= LANGUAGES
    for block in blocks:
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
    names: dict[str, object] = {}
    schema = "schemas/transaction.yaml"
    for block in blocks:
        if block.language == "yaml" and block.title and "event_id:" in block.text:
            schema = block.title
        check_text(block, folder, schema)
        for command, output in commands_of(block) if block.language in ("sh", "console") else ():
            check_command(command)
            in_order = page in SHOWN_AS_THEY_ARE and command.startswith("buckets")
            if in_order or is_run_here(command):
                run_command(command, output, buckets, shortened=not in_order)
        if block.language == "pycon" and page != ON_SPARK:
            run_session(block.text, names, page)


def check_text(block: Block, folder: Path, schema: str) -> None:
    if block.language == "yaml":
        check_yaml(block.text, folder, folder / schema)
    elif block.language == "jsonl":
        for line in block.text.splitlines():
            json.loads(line)
    elif block.language == "json":
        value = json.loads(block.text)
        for server in value["mcpServers"].values() if "mcpServers" in value else ():
            check_command(shlex.join(["buckets", *server["args"]]))
    elif block.language == "text" and block.text.startswith("$ buckets"):
        check_command(block.text.splitlines()[0].removeprefix("$ "))


def run_session(text: str, names: dict[str, object], page: str) -> None:
    """Run a session of Python, compare what it prints, and keep the names that it has defined."""
    report: list[str] = []
    session = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
    if doctest.DocTestRunner(verbose=False).run(session, out=report.append, clear_globs=False).failed:
        raise ExampleError("".join(report))
    names.update(session.globs)


def test_the_examples_in_the_help_of_commands_are_right():
    examples = [block for block in blocks_of(command_page.page()) if block.language == "sh"]
    assert len(examples) > 40
    for block in examples:
        for command, _ in commands_of(block):
            check_command(command)


def test_the_commands_of_contributing_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = [line for block in blocks_of(text) if not block.language for line in block.text.splitlines()]
    assert len(commands) > 10
    for command in commands:
        check_command(command)


def test_examples_of_every_kind_are_found():
    blocks = [block for path in page_paths() for block in blocks_of(path.read_text(encoding="utf-8"))]
    commands = [command for block in blocks if block.language in ("sh", "console") for command, _ in commands_of(block)]
    assert sum(block.language == "yaml" for block in blocks) > 20
    assert len(commands) > 100
    assert sum(map(is_run_here, commands)) > 25
