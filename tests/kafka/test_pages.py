"""The tutorial on Kafka, command after command, with a broker that runs already."""

import shutil
import time

import pytest

from buckets.resources import resource
from tests.docs.blocks import PAGES, blocks_of, commands_of
from tests.docs.commands import FEWER, leaf, words_of
from tests.spark.command import GIVE_UP_S, POLL_S, RunningCommand, run_command

pytestmark = pytest.mark.spark
PAGE = PAGES / "tutorials" / "live-on-kafka.md"
OF_THE_BROKER = {"kafka start", "kafka stop"}
IN_ANOTHER_PROCESS = {"audit"}
"""Commands with a Spark of their own."""


def steps() -> list[tuple[str, list[str]]]:
    """The commands of the page, each with its name; those that would go on for ever end at once."""
    found = []
    for block in blocks_of(PAGE.read_text(encoding="utf-8")):
        for command, _ in commands_of(block):
            program, *words = words_of(command)
            if program == "buckets" and (name := " ".join(leaf(words)[1])) not in OF_THE_BROKER:
                more = {"generate": FEWER, "watch": ["--once"]}
                found.append((name, [*words, *more.get(name, [])]))
    return found


def test_the_tutorial_on_kafka_is_right(broker, tmp_path, monkeypatch, buckets):
    monkeypatch.chdir(tmp_path)
    for name in ("conf", "schemas"):
        shutil.copytree(resource(name), tmp_path / name)
    conf = tmp_path / "conf" / "kafka.yaml"
    conf.write_text(
        conf.read_text(encoding="utf-8").replace("localhost:9092", broker.kafka.bootstrap_servers), encoding="utf-8"
    )
    names = [name for name, _ in steps()]
    assert names.index("run") < names.index("kafka send") < names.index("watch")
    before, after = steps()[: names.index("run")], steps()[names.index("run") + 1 :]
    for _, words in before:
        assert buckets(*words).code == 0, words
    with RunningCommand("run", "conf/kafka.yaml", log=tmp_path / "run.log") as job:
        for name, words in after:
            if name == "watch":
                wait_for_a_batch(job)
            ran = run_command(*words) if name in IN_ANOTHER_PROCESS else buckets(*words)
            code = ran.code if isinstance(ran, tuple) else ran.returncode
            assert code == 0, f"{words}: {ran}"
        assert job.interrupt() == 0


def wait_for_a_batch(job: RunningCommand) -> None:
    """Wait until the job has said that it has scored something."""
    given_up_s = time.monotonic() + GIVE_UP_S
    while "batch " not in job.stderr:
        assert job.is_running, job.stderr
        assert time.monotonic() < given_up_s, job.stderr
        time.sleep(POLL_S)
