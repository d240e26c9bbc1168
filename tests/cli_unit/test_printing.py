"""What people call their events, keys, rules and notes reaches no terminal as control characters."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from rich.table import Table
from rich.text import Text

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.record_files import OwnedFolder
from buckets.cli.console import JSON_VERSION, Terminal, json_text
from buckets.config.engine import EngineSettings
from buckets.feeds.lists import ListBook, WholeList
from buckets.monitor.live import LiveStatus
from buckets.outputs.recorded_outputs import read_rows
from buckets.printable import unseen_character
from buckets.rules.change import RuleChange
from buckets.rules.rule import Rule
from buckets.yaml_dialect import read_yaml, write_yaml
from tests.cli_unit.ran import Ran
from tests.core.done_batches import batch
from tests.core.examples import SCHEMA, written_rule
from tests.core.recorded_job import RecordedJob

EVIL = "x\x1b[2J\x9b31m\u202e\x00\x07\x08\r\u2028\u200b[bold]y[/z]\nend"
"""It clears the screen, colours, turns the line round, rings, overwrites, breaks lines, hides, and is markup."""
DAY = 1_767_225_600_000
RULE = written_rule(rule_id="evil", where={"kind": [EVIL]})
"""As an earlier release took it; now such texts are refused in rule files."""
IN_FILES = written_rule(rule_id="evil")


class EvilJob:
    """A job that has run, without Spark; whatever a person or a program could name is named badly."""

    def __init__(self, root: Path) -> None:
        self.root, self.conf, self.tables = root, root / "conf.yaml", root / "tables"
        (root / "events").mkdir(parents=True)
        self.schema, self.rules = root / "schema.yaml", root / "rules.yaml"
        self.schema.write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json", exclude_none=True)))
        test = {
            "name": "it fires",
            "given": [{"id": EVIL, "at": "0s", "payer": EVIL, "kind": EVIL, "account": "1", "vip": "true", "fee": "1"}],
            "defaults": {"amount": "500.00"},
            "expect": {"alerts": []},
        }
        self.rules.write_text(write_yaml({"rules": [IN_FILES], "tests": [test]}))
        self.other = root / "other.yaml"
        self.other.write_text(write_yaml({"rules": [IN_FILES | {"where": {"kind": ["y"]}}]}))
        reason = EVIL.replace("\n", " ").replace("\r", "")
        (root / "vips.csv").write_text(f"key,reason\nann,{reason}\n")
        written = {
            "source": {"kind": "json", "path": "events"},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "lists": {"vips": {"kind": "file", "path": "vips.csv"}},
            "checkpoint": "checkpoint",
            "output": {"path": "tables", "evaluations": True},
            "archive": {"path": "archive"},
            "trigger": {"interval": "1s"},
        }
        self.conf.write_text(yaml.safe_dump(written))
        self._run()

    def _run(self) -> None:
        source = f"json {self.root / 'events'}"
        identity = Checkpoint(self.root / "checkpoint").job.open(CheckpointIdentity(source, SCHEMA, EngineSettings()))
        job = RecordedJob(self.root, SCHEMA)
        rule = Rule.model_validate(RULE)
        job.change([RuleChange(change="put", rule=rule, author="ann", reason="a test")])
        rows = [
            {"id": f"{EVIL}{n}", "at": DAY + n, "payer": EVIL, "kind": EVIL, "account": 1, "vip": True}
            | {"amount": "60.00", "fee": "1", "position": n}
            for n in range(5)
        ]
        self.events = self.root / "day\x1b[2J.jsonl"
        self.events.write_text(
            "".join(json.dumps({k: v for k, v in row.items() if k != "position"}) + "\n" for row in rows)
        )
        job.batch(rows)
        OwnedFolder(job.archive.folder, "archive.path").take(identity)
        job.history()
        self.alert = read_rows(self.tables, "alerts", ["alert_id"])[0]["alert_id"]
        self.event = rows[0]["id"]
        lists = ListBook(job.checkpoint, {"vips": WholeList(self.root / "vips.csv")})
        lists.start_reading()
        alerts = [DeltaTable(self.tables / "alerts").to_pyarrow_table()]
        with LiveStatus(job.checkpoint.path, lambda: job.pipeline.rule_set, rules_fault=lambda: EVIL) as live:
            live.on_batch(batch(5, DAY, [(DAY, 1.0)], alerts))


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> EvilJob:
    return EvilJob(tmp_path_factory.mktemp("evil"))


COMMANDS = """\
alerts TABLES
alerts TABLES --json
alerts TABLES --rule EVIL
alerts EVIL
explain CONF ALERT
explain CONF ALERT --json
explain CONF --event EVENT --rule evil
explain CONF --event EVENT --rule evil --json
explain CONF EVIL
verdict ALERT fraud --by EVIL --note EVIL --conf CONF
verdict ALERT EVIL --conf CONF
verdict fraud --event EVIL --conf CONF
verdicts CONF
verdicts CONF --json
verdicts CONF --open
verdicts CONF --open --json
rules check RULES --schema SCHEMA
rules check RULES --schema SCHEMA --json
rules check RULES --schema SCHEMA --events EVENTS
rules check EVIL
rules show RULES --schema SCHEMA
rules test RULES --schema SCHEMA
rules list --conf CONF
rules list --conf CONF --json
rules history --conf CONF
rules diff RULES OTHER --conf CONF
rules diff RULES OTHER --conf CONF --json
rules apply OTHER --conf CONF --dry-run --author EVIL --reason EVIL
rules export --conf CONF
rules quality CONF
rules quality CONF --json
rules pause EVIL --conf CONF
backtest OTHER --conf CONF
backtest OTHER --conf CONF --json -
backtest RULES --events EVENTS --schema SCHEMA
replay CONF
replay CONF --json
features RULES --events EVENTS --schema SCHEMA --out OUT
lists show --conf CONF
lists show vips ann --conf CONF
lists show vips EVIL --conf CONF
snooze --rule evil --key JSON --until 2030-01-01 --reason moves --author ann --conf CONF
snooze --list --conf CONF
watch CONF --once
archive CONF
run EVIL
EVIL
alerts --EVIL
""".splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_invisible_reaches_the_terminal(buckets, job, command, tmp_path):
    words = {
        "TABLES": job.tables, "CONF": job.conf, "ALERT": job.alert, "EVENT": job.event, "RULES": job.rules,
        "OTHER": job.other, "SCHEMA": job.schema, "EVENTS": job.events, "OUT": tmp_path / "features",
        "JSON": json.dumps({"payer": EVIL}), "EVIL": EVIL, "--EVIL": f"--{EVIL}",
    }  # fmt: skip
    ran: Ran = buckets(*(words.get(word, word) for word in command.split()))
    assert unseen_character(ran.out, "\n") is None
    assert unseen_character(ran.err, "\n") is None
    if not any("EVIL" in word for word in command.split()):
        assert ran.code == (1 if "rules test" in command else 0), ran.err
    if "--json" in command and ran.code == 0:
        for text in ran.out.splitlines() if "rules check" in command else [ran.out]:
            check_form(json.loads(text), is_line="rules check" in command)


def check_form(printed: Any, is_line: bool) -> None:
    """See that an object has a version, and that no time is a number."""
    assert is_line or isinstance(printed, list) or printed["version"] == JSON_VERSION
    pairs = [("", printed)]
    while pairs:
        name, value = pairs.pop()
        if isinstance(value, dict):
            pairs += value.items()
        elif isinstance(value, list):
            pairs += [(name, each) for each in value]
        assert isinstance(value, str | None) or not name.endswith(("event_time", "_at", "from", "until", "to")), name


def test_json_with_escapes_means_the_same():
    value = {"id": EVIL, "letters": "é\U0001f600\ue000"}
    assert json.loads(json_text(value)) == value
    assert unseen_character(json_text(value), "\n") is None


def test_yaml_with_escapes_means_the_same():
    for text in (EVIL, "é\u202e\U000e0001", "\x85", "plain"):
        written = write_yaml({"a": text})
        assert unseen_character(written, "\n") is None
        assert read_yaml(written)[0] == {"a": text}


def test_a_table_is_as_wide_as_what_it_shows():
    terminal = Terminal(width=80)
    terminal.file = io.StringIO()
    table = Table("Key", "Event")
    table.add_row(EVIL.replace("\n", ""), Text("a\x1bb", "bold"))
    terminal.print(table)
    lines = terminal.file.getvalue().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "[bold]y[/z]" in terminal.file.getvalue()
    assert "\\x1b" in terminal.file.getvalue()
