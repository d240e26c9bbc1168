"""Every command that reads a record of the checkpoint says in one line that it is damaged, and shows nothing of it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from buckets.checkpoint.driver_state import Checkpoint
from buckets.feeds.lists import ListBook, WholeList
from buckets.monitor.live import LiveStatus
from buckets.rules.rule_set import RuleSet
from tests.cli_unit.archived_conf import archived_conf
from tests.cli_unit.ran import one_line

LISTS = "lists:\n  blocked: {kind: file, path: blocked.csv}\n"
COMMANDS = {
    "archive": ("archive", "conf.yaml"),
    "replay": ("replay", "conf.yaml"),
    "explain": ("explain", "conf.yaml", "--event", "e3", "--rule", "r"),
    "backtest": ("backtest", "rules.yaml", "--conf", "conf.yaml", "--json", "-"),
    "features": ("features", "rules.yaml", "--conf", "conf.yaml", "--out", "out.parquet", "--overwrite"),
    "rules list": ("rules", "list", "--conf", "conf.yaml"),
    "rules history": ("rules", "history", "--conf", "conf.yaml"),
    "rules diff": ("rules", "diff", "1", "--conf", "conf.yaml"),
    "lists show": ("lists", "show", "--conf", "conf.yaml"),
    "lists show KEY": ("lists", "show", "blocked", "p1", "--conf", "conf.yaml"),
    "state stats": ("state", "stats", "checkpoint"),
    "state export": ("state", "export", "checkpoint", "--to", "export"),
    "watch": ("watch", "conf.yaml", "--once"),
    "run": ("run", "conf.yaml"),
}
READERS = {
    "job.json": ("archive", "state stats", "state export", "run"),
    "rule_sets/000001.json": ("explain", "rules list", "rules history", "rules diff"),
    "terms/000000000.json": ("archive", "replay", "explain", "backtest", "features"),
    "cuts/000000000.jsonl": ("archive", "replay", "explain", "backtest", "features"),
    "batches/000000001.json": ("rules list",),
    "lists/blocked/000000001.json": ("lists show", "lists show KEY"),
    "lists/blocked/000000001.arrow": ("lists show KEY",),
    "lists/faults.json": ("lists show",),
    "live.json": ("watch",),
}


@pytest.fixture(scope="module")
def conf(tmp_path_factory) -> Iterator[Path]:
    """A job with records of all kinds."""
    folder = tmp_path_factory.mktemp("damaged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        conf = archived_conf(folder)
        conf.write_text(conf.read_text() + LISTS)
        (folder / "blocked.csv").write_text("key,author\np1,ann\n")
        (folder / "gone").mkdir()
        (folder / "checkpoint" / "spark" / "commits").mkdir()
        (folder / "checkpoint" / "spark" / "commits" / "1").touch()
        known = Checkpoint(folder / "checkpoint")
        ListBook(known, {"blocked": WholeList(folder / "blocked.csv")}).start_reading()
        record = known.batches.record(1)
        assert record is not None
        known.batches.keep(1, replace(record, driver=-1))
        # As after 200 batches: what its cut says stands in its line alone.
        (folder / "checkpoint" / "buckets" / "batches" / "000000000.json").unlink()
        with LiveStatus(known.path, lambda: RuleSet(1, (), (), {})):
            pass
        yield conf


def damages(whole: bytes, dice: random.Random) -> Iterator[bytes]:
    bit = dice.randrange(len(whole) * 8 - 8)
    yield b""
    yield whole[: dice.randrange(1, len(whole) - 2)]
    yield whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :]


@pytest.mark.parametrize(("record", "command"), [(each, name) for each, names in READERS.items() for name in names])
def test_a_command_that_reads_a_damaged_record_says_so_in_one_line(buckets, conf, record, command, as_worded):
    file = conf.parent / "checkpoint" / "buckets" / record
    whole = file.read_bytes()
    try:
        for damaged in damages(whole, random.Random(f"{record} {command}")):
            file.write_bytes(damaged)
            said = one_line(buckets(*COMMANDS[command]), 1)
            assert record.removeprefix("lists/").rpartition("/")[2] in said
            assert as_worded(said)
    finally:
        file.write_bytes(whole)
