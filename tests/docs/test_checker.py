"""The checker of examples notices an example that is not right."""

import pytest

from tests.docs.blocks import blocks_of, commands_of
from tests.docs.commands import ExampleError, check_command, is_run_here, is_shown, run_command
from tests.docs.test_examples import run_session
from tests.docs.yaml_examples import RULE, check_yaml


@pytest.mark.parametrize(
    "command",
    [
        "buckets rules chek my-rules.yaml",
        "buckets rules check my-rules.yaml --stricter",
        "buckets evaluate --events day.jsonl --rules my-rules.yaml",
        "buckets run",
        "buckets",
        "make everything",
        "python bench/no_such_benchmark.py",
        "python -m buckets_of_somebody",
        "pytest tests/core/test_nothing.py",
        "rm -rf demo-out",
    ],
)
def test_a_command_that_is_not_there_is_noticed(command):
    with pytest.raises(ExampleError):
        check_command(command)


@pytest.mark.parametrize(
    "example",
    [
        RULE.replace("function: count", "function: counts"),
        RULE.replace("group_by: [payerId]", "group_by: [payer]"),
        RULE + "    colour: red\n",
        "where: paymentType = 3\n",
        "event_id: id\nevent_time: {field: at, unit: hours}\n",
        "engine: {precision: {tail: ever}}\n",
        "output: {path: tables, kept: 1d}\n",
        "lists: [a, b\n",
    ],
)
def test_yaml_that_is_not_valid_is_noticed(tmp_path, example):
    with pytest.raises(ExampleError):
        check_yaml(example, tmp_path)


def test_an_example_that_fails_or_prints_something_else_is_noticed(folder, buckets):
    with pytest.raises(ExampleError, match="exit code 1"):
        run_command("buckets rules check no-rules.yaml", None, buckets, shortened=True)
    shown = "my-rules.yaml: 6 rules in 4 groups are valid\n"
    run_command("buckets rules check my-rules.yaml", f"{shown}…\n", buckets, shortened=True)
    with pytest.raises(ExampleError, match="prints"):
        run_command("buckets rules check my-rules.yaml", shown.replace("6", "7"), buckets, shortened=True)


def test_a_session_of_python_that_prints_something_else_is_noticed():
    with pytest.raises(ExampleError, match="Got"):
        run_session(">>> 1 + 1\n3\n", {}, "page")


@pytest.mark.parametrize(
    ("shown", "printed", "is_it"),
    [
        ("a\nb\n", "a  \nb\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("…\n", "", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\n", "b\na\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_ellipsis_stands_for_any_lines(shown, printed, is_it):
    assert is_shown(shown, printed) is is_it


def test_blocks_and_commands_are_read_as_they_stand():
    page = (
        "Text\n\n```sh\n# a comment\nmake demo\nbuckets run \\\n  conf/demo.yaml   # starts\n```\n\n"
        '```yaml title="a.yaml"\na: 1\n```\n'
    )
    commands, written = blocks_of(page)
    assert [command for command, _ in commands_of(commands)] == ["make demo", "buckets run conf/demo.yaml   # starts"]
    assert (written.title, written.text, written.line) == ("a.yaml", "a: 1\n", 10)
    (console,) = blocks_of("```console\n$ buckets alerts results\nnone\n```\n")
    assert list(commands_of(console)) == [("buckets alerts results", "none\n")]


def test_what_needs_a_job_is_not_run_here():
    assert is_run_here("buckets rules check conf/demo-rules.yaml --conf conf/demo.yaml")
    assert not is_run_here("buckets backtest new-rules.yaml --conf conf/demo.yaml")
    assert not is_run_here("buckets run conf/demo.yaml")
    assert not is_run_here("make demo")
