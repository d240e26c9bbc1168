"""The script of the guide does what it says."""

import os
import subprocess
import sys

from tests.docs.blocks import PAGES, blocks_of
from tests.mcp.assistant import command


def test_the_script_of_the_guide_asks_for_an_alert(recorded, tmp_path):
    page = (PAGES / "guides" / "assistant.md").read_text(encoding="utf-8")
    (script,) = [block.text for block in blocks_of(page) if block.title == "ask.py"]
    begin = 'command=".venv/bin/buckets", args=["mcp", "demo-out/conf.yaml"]'
    assert begin in script
    program, *arguments = command(recorded)
    ours = script.replace(begin, f"command={program!r}, args={arguments!r}, env={dict(os.environ)!r}")
    ran = subprocess.run(
        [sys.executable, "-c", ours], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120
    )
    rule, headline = ran.stdout.splitlines()
    assert rule.startswith("The number of events of the same payer over the last 1h is at least 2 2 >= 2")
    assert headline.startswith("Alert ")
    assert headline.endswith(" of rule often: raised")
