"""Each row of the table of exit codes that needs neither Spark nor Kafka; jobs are in tests/spark/test_stop.py."""

import re
import signal
import subprocess
import sys

import pytest
import yaml

from buckets.exit_codes import DONE, FAILED, INTERRUPTED, MISUSED
from tests.cli_unit.ran import Ran
from tests.docs.blocks import PAGES

RULE = {
    "rule_id": "many",
    "group_by": ["payer"],
    "aggregate": {"function": "count"},
    "window": {"length": "1h"},
    "limit": {"operator": ">", "value": "2"},
}
SCHEMA = {"event_id": "id", "event_time": "t", "attributes": {"payer": "string"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A job that has not run, whose rule has a test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    write_rules(tmp_path, RULE)
    conf = {"source": {"kind": "json", "path": "source"}, "schema": "schema.yaml", "rules": "rules.yaml"}
    conf |= {"checkpoint": "checkpoint", "output": {"path": "tables"}}
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(conf))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(conf | {"colour": "red"}))
    return tmp_path


def write_rules(folder, *rules, **tests):
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": list(rules), **tests}))


ROWS = {
    "run": [("bad.yaml", MISUSED), ("gone.yaml", MISUSED), ("conf.yaml --colour", MISUSED)],
    "audit": [("bad.yaml", MISUSED), ("conf.yaml", MISUSED)],
    "check": [("conf.yaml", DONE), ("bad.yaml", FAILED), ("conf.yaml --colour", MISUSED)],
    "rules check": [
        ("rules.yaml --schema schema.yaml", DONE),
        ("gone.yaml --schema schema.yaml", FAILED),
        ("rules.yaml --conf bad.yaml", FAILED),
        ("--colour", MISUSED),
    ],
    "rules test": [
        ("rules.yaml --schema schema.yaml", DONE),
        ("rules.yaml --schema schema.yaml --require", FAILED),
        ("rules.yaml --colour", MISUSED),
    ],
    "replay": [("conf.yaml", FAILED), ("bad.yaml", MISUSED)],
    "explain": [("conf.yaml a1", FAILED), ("bad.yaml a1", MISUSED)],
    "watch": [("bad.yaml --once", MISUSED), ("conf.yaml --once", FAILED)],
    "backtest": [
        ("rules.yaml --events none.csv --schema schema.yaml --expect many.alerts=0", FAILED),
        ("rules.yaml --conf bad.yaml", MISUSED),
    ],
    "kafka status": [("--dir broker", FAILED), ("--colour", MISUSED)],
    "mcp": [("bad.yaml", MISUSED)],
    "rules list": [("--conf bad.yaml", MISUSED), ("", MISUSED)],
}


@pytest.mark.parametrize(
    ("command", "arguments", "code"),
    [(command, arguments, code) for command, rows in ROWS.items() for arguments, code in rows],
)
def test_a_command_ends_with_its_code(buckets, folder, command, arguments, code):
    ran: Ran = buckets(*command.split(), *arguments.split())
    assert ran.code == code, ran.out + ran.err


def test_a_rule_with_an_error_of_lint_is_found(buckets, folder):
    write_rules(folder, RULE | {"where": "payer = 'a' AND payer = 'b'"})
    assert buckets("rules", "check", "rules.yaml", "--schema", "schema.yaml").code == FAILED


WAITING = """
import sys, types
from buckets.cli import commands
from buckets.cli.commands import main

def wait():
    print("waiting", flush=True)
    input()

sys.modules["buckets.cli.waiting"] = types.SimpleNamespace(wait=wait)
commands.COMMANDS["wait"] = "waiting.wait"
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_any_other_command(number):
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, "wait"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (INTERRUPTED, "interrupted: nothing is left half done")


def test_the_page_names_commands_whose_codes_are_tried_here():
    page = (PAGES / "reference" / "faults.md").read_text(encoding="utf-8")
    table = page.partition("| Command | 0 | 1 | 2 | 130 |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {words for cell in cells for words in re.findall(r"`([a-z ]+?)(?: --[a-z]+)?`", cell)}
    assert named <= ROWS.keys()
