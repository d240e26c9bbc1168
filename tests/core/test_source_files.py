"""The files of a source that are not read are named, each once: hidden, changed, gone, or come too late."""

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from buckets.events.source_files import passed_over, readable_files
from buckets.monitor.words import FileWatch, TakenFiles

MODIFIED_MS = 1_700_000_000_123


class Source:
    """A folder of files, and the list of those that Spark has taken, in the form in which Spark writes it."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "source"
        self.checkpoint = root / "checkpoint" / "spark"
        for folder in (self.folder, *(self.checkpoint / name for name in ("sources/0", "offsets", "commits"))):
            folder.mkdir(parents=True)
        self.said: list[str] = []

    def add(self, name: str, modified_ms: int = MODIFIED_MS) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, ns=(modified_ms * 10**6, modified_ms * 10**6))
        return path

    def entries(self, batch: int, *names: str) -> list[str]:
        addresses = [f"file://{quote(str(self.folder / name))}" for name in names]
        return [json.dumps({"path": at, "timestamp": MODIFIED_MS, "batchId": batch}) for at in addresses]

    def take(self, batch: int, *names: str, committed: bool = True) -> None:
        """A batch of files, done or only begun."""
        self.write(str(batch), self.entries(batch, *names))
        (self.checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"conf":{{}}}}\n{{"logOffset":{batch}}}')
        if committed:
            (self.checkpoint / "commits" / str(batch)).write_text("v1\n{}")

    def write(self, name: str, lines: list[str]) -> None:
        (self.checkpoint / "sources" / "0" / name).write_text("\n".join(["v1", *lines]))

    def watch(self, subfolders: bool = True) -> FileWatch:
        return FileWatch(self.folder, subfolders, self.checkpoint.parent, self.said.append)

    def named(self) -> dict[str, str]:
        """What was said of each file, by its path in the source."""
        lines = [line.removeprefix(f"events {self.folder}/").split(": is not read: ") for line in self.said]
        assert len({name for name, _ in lines}) == len(lines), "a file was named twice"
        return dict(lines)


@pytest.fixture
def source(tmp_path) -> Source:
    return Source(tmp_path)


def test_what_others_hide_is_named_once_and_what_holds_no_data_is_not(source, as_worded):
    hidden = ["_part.jsonl", ".hidden.jsonl", "copy._COPYING_", "deep/_er.jsonl"]
    for name in [*hidden, "_temporary/0/a.jsonl", "a.jsonl", "deep/b c#%?.jsonl"]:
        source.add(name)
    for name in ["_SUCCESS", "deep/_SUCCESS", ".a.jsonl.crc", "_metadata", "_common_metadata"]:
        source.add(name)
    assert {str(path.relative_to(source.folder)) for path in readable_files(source.folder, True)} == {
        "a.jsonl",
        "deep/b c#%?.jsonl",
    }
    with source.watch() as watch:
        source.take(0, "a.jsonl", "deep/b c#%?.jsonl")
    named = source.named()
    assert set(named) == {*hidden, "_temporary"}
    assert watch.not_read == 5
    assert as_worded("\n".join(named[name] for name in ("_part.jsonl", "_temporary", "copy._COPYING_")))


def test_folders_below_are_named_unless_they_are_read_and_hold_files(source, as_worded):
    for name in ["a.jsonl", "day=1/b.jsonl", "day=1/deep/c.jsonl", "done/d.jsonl", "none/_SUCCESS"]:
        source.add(name)
    with source.watch(subfolders=False):
        source.take(0, "a.jsonl", "day=1/b.jsonl")
    assert set(source.named()) == {"day=1", "done"}
    assert all(as_worded(reason) for reason in source.named().values())
    source.said.clear()
    with source.watch(subfolders=True):
        source.take(1, "day=1/b.jsonl", "day=1/deep/c.jsonl", "done/d.jsonl")
    assert source.said == []


def test_a_file_that_has_changed_since_it_was_taken_is_named(source, as_worded):
    source.add("a.jsonl")
    source.add("b.jsonl")
    source.take(0, "a.jsonl", "b.jsonl")
    with source.watch():
        source.add("b.jsonl", MODIFIED_MS + 1)
    ((name, reason),) = source.named().items()
    assert name == "b.jsonl"
    assert as_worded(reason)


def test_a_file_of_a_batch_that_has_not_ended_and_is_gone_is_named(source, as_worded):
    source.take(0, "old.jsonl")
    source.add("here.jsonl")
    source.take(1, "here.jsonl", "gone.jsonl", committed=False)
    with source.watch():
        pass
    ((name, reason),) = source.named().items()
    assert name == "gone.jsonl"
    assert as_worded(reason)


def test_files_that_have_been_read_may_go(source):
    source.take(0, "a.jsonl")
    source.take(1, "b.jsonl")
    with source.watch():
        pass
    assert source.said == []


def test_a_file_that_came_while_the_job_ended_is_named_but_not_when_the_job_failed(source, as_worded):
    source.add("a.jsonl")
    watch = source.watch()
    watch.__enter__()
    watch.__exit__(RuntimeError, RuntimeError("broken"), None)
    assert source.said == []
    with source.watch():
        pass
    ((name, reason),) = source.named().items()
    assert name == "a.jsonl"
    assert as_worded(reason)


def test_a_source_beside_the_folder_of_its_configuration_is_known_by_the_path_that_spark_writes(source):
    source.add("a.jsonl")
    source.take(0, "a.jsonl")
    source.folder = source.folder / ".." / source.folder.name
    with source.watch():
        pass
    assert source.said == []


def test_the_list_of_taken_files_is_read_on_where_earlier_ones_are_joined(source):
    taken = TakenFiles(source.checkpoint)
    names = [f"{number}.jsonl" for number in range(13)]
    for number in range(9):
        source.take(number, names[number])
    taken.read()
    assert [Path(path).name for path in taken.files] == names[:9]
    source.write("9.compact", [line for number in range(10) for line in source.entries(number, names[number])])
    for number in range(9):
        (source.checkpoint / "sources" / "0" / str(number)).unlink()
    source.write("10", source.entries(10, names[10]))
    source.write(".11.tmp", ["no entry"])
    for again in (taken, TakenFiles(source.checkpoint)):
        again.read()
        assert {Path(path).name: entry.batch for path, entry in again.files.items()} == {
            name: number for number, name in enumerate(names[:11])
        }


def test_a_pipe_in_the_folder_is_named(tmp_path, as_worded):
    source = Source(tmp_path)
    os.mkfifo(source.folder / "pipe.jsonl")
    os.utime(source.folder / "pipe.jsonl", (1, 1))
    ((_, reason),) = passed_over(source.folder, subfolders=False)
    assert as_worded(reason)
