"""Commands on pages of the documentation that read what `make demo` leaves do so, on a small demo."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from buckets.cli.commands import exit_code
from buckets.outputs.recorded_outputs import read_output
from buckets.resources import resource
from tests.docs.blocks import blocks_of, commands_of, page_paths
from tests.docs.commands import check_command, leaf, words_of
from tests.spark.command import run_command

pytestmark = pytest.mark.spark
RUN = {
    "alerts",
    "archive",
    "backtest",
    "explain",
    "features",
    "replay",
    "rules quality",
    "state export",
    "state show",
    "state stats",
    "verdict",
    "verdicts",
}
"""Commands that read a job which has ended."""


def commands() -> Iterator[str]:
    """The commands of all pages that name the demo, each once."""
    blocks = [block for path in page_paths() for block in blocks_of(path.read_text(encoding="utf-8"))]
    for block in blocks:
        for command, _ in commands_of(block) if block.language in ("sh", "console") else ():
            words = words_of(command)
            if words[0] == "buckets" and re.search(r"conf/demo\.yaml|demo-out", command):
                check_command(command)
                if " ".join(leaf(words[1:])[1]) in RUN:
                    yield shlex.join(words[1:])


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The folder of a reader after `make demo`, with files that pages name and leave to the reader."""
    folder: Path = tmp_path_factory.mktemp("reader")
    for name in ("conf", "schemas"):
        shutil.copytree(resource(name), folder / name)
    ended = run_command("demo", "--transactions", "3000", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    alerts = read_output(folder / "demo-out" / "tables", "alerts").to_pylist()
    for name in ("my-rules.yaml", "new-rules.yaml"):
        shutil.copy(resource("conf/demo-rules.yaml"), folder / name)
    (folder / "labels.csv").write_text(f"transactionId\n{alerts[0]['event_id']}\n", encoding="utf-8")
    (folder / "cases.csv").write_text(
        f"alert_id,verdict,by\n{alerts[1]['alert_id']},legitimate,ann\n", encoding="utf-8"
    )
    return folder


def test_the_commands_of_all_pages_that_read_a_demo_are_right(demo, monkeypatch, capsys):
    monkeypatch.chdir(demo)
    (alert, *_) = [
        row
        for row in read_output(demo / "demo-out" / "tables", "alerts").to_pylist()
        if row["rule_id"] == "payer-to-beneficiary-24h"
    ]
    of_pages = {
        "ALERT_ID": alert["alert_id"],
        "ffb1ff1b": alert["alert_id"][:12],
        "t000000123": alert["event_id"],
        "p017272,b00175": f"{alert['key']['payerId']},{alert['key']['beneficiaryId']}",
        "payerId=p307684": f"payerId={alert['key']['payerId']}",
    }
    found = list(dict.fromkeys(commands()))
    assert len(found) > 15
    for command in found:
        words = [of_pages.get(word, word) for word in shlex.split(command)]
        monkeypatch.setattr(sys, "argv", ["buckets", *words])
        assert exit_code() == 0, f"{command}: {capsys.readouterr().err}"
