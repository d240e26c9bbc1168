"""The command `buckets console`: how it starts, ends, and what it says of what cannot be."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from buckets.exit_codes import FAILED, MISUSED
from tests.console.served import serving


def start(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", "from buckets.cli.commands import main; main()", "console", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    )


def ended(*arguments: object) -> tuple[int, str]:
    process = start(*arguments)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_it_says_where_it_is_and_ends_quietly_with_open_pages(recorded):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start(recorded, "--port", port)
    line = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:(\d+)", line)[0]
    assert str(port) in address
    assert urllib.request.urlopen(address, timeout=30).status == 200
    stream = urllib.request.urlopen(f"{address}/now/live", timeout=30)
    assert stream.readline().startswith(b":")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    stream.close()
    assert "Traceback" not in said
    assert process.returncode in (0, 130)


def test_a_port_in_use_is_one_line(recorded):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = ended(recorded, "--port", taken.getsockname()[1])
    assert code == 1
    assert re.fullmatch(r"error: console: cannot listen on 127\.0\.0\.1, port \d+ \(.*\); .*--port\n", said)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["nothing.yaml"], MISUSED, "nothing.yaml"),
        (["CONF", "--host", "0.0.0.0"], FAILED, "--host 0.0.0.0: can be reached from elsewhere"),
        (["CONF", "--host", "192.0.2.1"], FAILED, "--host 192.0.2.1: can be reached from elsewhere"),
    ],
)
def test_what_cannot_be_is_one_line(recorded, arguments, code, line):
    ended_with, said = ended(*[recorded if each == "CONF" else each for each in arguments])
    assert ended_with == code
    assert line in said
    assert said.count("\n") == 1


def test_a_job_that_has_recorded_nothing_says_what_to_do(copied, tmp_path):
    for name in ("tables", "checkpoint", "archive"):
        (copied.parent / name).rename(tmp_path / name)
    with serving(copied) as served:
        assert "has never run" in served.ask("/").text
        assert "buckets run" in served.ask("/").text
        answer = served.ask("/alerts")
        assert answer.status == 400
        assert "Nothing is recorded in" in answer.text
        assert served.ask("/rules").status == 200
        assert served.ask("/rule?id=large").status == 200


def test_a_damaged_table_is_one_line(copied):
    log = copied.parent / "tables" / "alerts" / "_delta_log" / f"{0:020}.json"
    log.write_text("{")
    with serving(copied) as served:
        answer = served.ask("/alerts")
        assert answer.status == 400
        assert "cannot be read" in answer.text
