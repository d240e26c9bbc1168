"""The server as a process: what goes over its streams, what it leaves alone, and how it ends."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.mcp.assistant import COMMAND, command
from tests.mcp.test_answers import RULE

NOISY = f"""
import os, subprocess
from buckets.mcp import tools
read = tools.read_live
def noisy(checkpoint):
    print("noise of Python")
    os.write(1, b"noise of a library\\n")
    subprocess.run(["echo", "noise of a child"])
    return read(checkpoint)
tools.read_live = noisy
{COMMAND}
"""
BROKEN = f"""
from buckets.mcp import tools
def broken(checkpoint):
    raise ZeroDivisionError("secret")
tools.read_live = broken
{COMMAND}
"""
ENDLESS = f"""
import subprocess, sys
from buckets.questions import long_questions
def never(question):
    pipe = subprocess.PIPE
    waiting = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return subprocess.Popen(waiting, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
long_questions._start = never
{COMMAND}
"""
BEGIN = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}  # fmt: skip
BEGUN = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def calling(number, tool, **arguments):
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def started(conf: Path, code: str = COMMAND, **how) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(command(conf, code=code), stdin=pipe, stdout=pipe, stderr=pipe, text=True, **how)


def send(process, *messages):
    for message in messages:
        process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    process.stdin.flush()


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def all_below(pid: int) -> list[int]:
    """The processes below one; a thread of it may have started them."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            child = int(status.parent.name)
            found += [child, *all_below(child)]
    return found


def answering(pid: int) -> list[int]:
    """The processes below one that answer long questions."""
    found = []
    for each in all_below(pid):
        with suppress(OSError):
            found += [each] if b"buckets.questions.key_events" in Path(f"/proc/{each}/cmdline").read_bytes() else []
    return found


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_only_the_protocol_is_on_standard_output(recorded):
    process = started(recorded, NOISY)
    deep = '{"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": ' + "[" * 100 + "]" * 100 + "}"
    calls = [
        calling(2, "job_health"),
        calling(3, "explain_alert", alert_id="zzz"),
        calling(4, "alerts", limit=1),
        "no JSON at all",
        '{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "\\ud800", "arguments": {}}}',
        deep,
        {"jsonrpc": "2.0", "id": 7, "method": "no/such"},
    ]
    send(process, BEGIN, BEGUN, *calls)
    lines = []
    while {line.get("id") for line in lines}.isdisjoint({4}) or {line.get("id") for line in lines}.isdisjoint({2}):
        lines.append(json.loads(process.stdout.readline()))
    send(process, calling(8, "job_health"))
    rest, errors = process.communicate(timeout=60)
    lines += [json.loads(line) for line in rest.splitlines()]
    assert process.returncode == 0
    assert all(line["jsonrpc"] == "2.0" for line in lines)
    assert {2, 3, 4} <= {line.get("id") for line in lines}
    assert "noise of Python" in errors
    assert "noise of a library" in errors
    assert "noise of a child" in errors
    assert "Traceback" not in errors


def test_a_fault_of_the_program_is_in_its_log_and_the_server_goes_on(recorded, connect, as_worded):
    one = connect(recorded, code=BROKEN)
    result = one.call("job_health")
    assert result.is_error
    assert as_worded(result.content[0].text)
    assert "ZeroDivisionError" in one.log.read_text()
    assert one.answer("rules")["rules"]


def test_reading_changes_no_file(copied, connect):
    one = connect(copied)
    one.answer("why_not", event_id="e0", rule_id="large")  # the first to ask extends the archive
    before = digests(copied.parent)
    (alert,) = one.answer("alerts", limit=1)["alerts"]
    one.answer("job_health")
    one.answer("explain_alert", alert_id=alert["alert_id"])
    one.answer("why_not", event_id="e0", rule_id="large")
    one.answer("key_timeline", key={"payer": "p1"})
    one.answer("rules", as_written=True)
    one.answer("rule_history")
    one.answer("quality")
    one.answer("backtest_draft", rule=RULE, sweeps=["limit=80,90"])
    one.fault("propose_draft", rule="rules: [", reason="why")
    assert digests(copied.parent) == before


def test_two_assistants_at_once(recorded, connect):
    ones = [connect(recorded), connect(recorded, mode="legacy")]
    (alert,) = ones[0].answer("alerts", limit=1)["alerts"]

    def ask(number):
        one = ones[number % 2]
        calls = (
            ("explain_alert", {"alert_id": alert["alert_id"]}),
            ("key_timeline", {"key": {"payer": "p1"}}),
            ("quality", {}),
            ("backtest_draft", {"rule": RULE}),
        )
        tool, arguments = calls[number // 2 % 4]
        return tool, json.dumps(one.answer(tool, **arguments), sort_keys=True)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(16)))
    assert len(set(answers)) == 4


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_backtest_says_how_far_it_is(recorded, connect, mode):
    one, told = connect(recorded, mode=mode), []

    async def tell(progress, total, message):
        told.append((progress, total, message))

    asked = partial(one.client.call_tool, "backtest_draft", {"rule": RULE}, progress_callback=tell)
    assert not one.portal.call(asked).is_error
    assert told[0][0] == 0
    assert [progress for progress, _, _ in told] == sorted({progress for progress, _, _ in told})


def test_a_backtest_ends_when_its_time_is_over(recorded, connect, as_worded):
    one = connect(recorded, code=ENDLESS)
    assert as_worded(one.fault("backtest_draft", rule=RULE, seconds_at_most=1))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_backtest_that_is_cancelled_ends_its_process(recorded, connect, mode):
    one = connect(recorded, mode=mode)
    (server,) = [pid for pid in all_below(os.getpid()) if str(recorded) in Path(f"/proc/{pid}/cmdline").read_text()
                 and one.log.samefile(f"/proc/{pid}/fd/2")]  # fmt: skip

    async def cancelled():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.client.call_tool, "backtest_draft", {"rule": RULE})
            while not answering(server):
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()

    one.portal.call(cancelled)
    until(lambda: not answering(server))
    assert one.answer("backtest_draft", rule=RULE)["rules"][0]["alerts"] > 0


@pytest.mark.parametrize(
    "end", [signal.SIGTERM, signal.SIGINT, None], ids=["terminated", "interrupted", "no more input"]
)
def test_the_server_ends_at_once_with_all_that_it_has_started(recorded, end):
    process = started(recorded)
    send(process, BEGIN, BEGUN)
    process.stdout.readline()
    send(process, calling(2, "backtest_draft", rule=RULE))
    until(lambda: answering(process.pid))
    (work,), below = answering(process.pid), all_below(process.pid)
    assert os.getpriority(os.PRIO_PROCESS, work) >= 10
    if end is not None:
        process.send_signal(end)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == (0 if end is None else 130)
    assert "Traceback" not in errors
    until(lambda: all(map(is_gone, below)))


def test_a_client_that_is_killed_ends_the_server(recorded, tmp_path):
    client = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
            "server.stdin.write((sys.argv[1] + '\\n').encode())\n"
            "server.stdin.flush()\n"
            "server.stdout.readline()\n"
            "print(server.pid, flush=True)\n"
            "time.sleep(600)\n",
            "\n".join(map(json.dumps, (BEGIN, BEGUN, calling(2, "backtest_draft", rule=RULE)))),
            *command(recorded),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    server = int(client.stdout.readline())
    until(lambda: answering(server))
    below = all_below(server)
    client.kill()
    client.communicate()
    until(lambda: is_gone(server) and all(map(is_gone, below)), 20)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_while_a_rule_is_checked_leaves_nothing(copied, end):
    process = started(copied)
    send(process, BEGIN, BEGUN)
    process.stdout.readline()
    send(process, calling(2, "propose_draft", rule=RULE, reason="why"))
    until(lambda: len(all_below(process.pid)) > 1)
    below = all_below(process.pid)
    process.send_signal(end)
    process.communicate(timeout=30)
    until(lambda: all(map(is_gone, below)))
