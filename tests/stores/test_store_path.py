"""Paths of a store say and do what paths of a file system do, or refuse it in a line."""

import itertools
import json
import pickle
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from buckets.checkpoint.batch_records import BatchRecord, BatchRecords
from buckets.checkpoint.lock import Lock
from buckets.checkpoint.record_files import HELD, RecordFiles
from buckets.checkpoint.source_offsets import records_folder
from buckets.config.job import load_job
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.events.source_files import modified_files, modified_ms, passed_over, readable_files
from buckets.exit_codes import FAILED
from buckets.files import append_whole, holds_more_than, remove_tree, sizes_in, write_first, write_whole, written_whole
from buckets.kafka.local_broker import free_port
from buckets.lists.list_file import load_list
from buckets.monitor.live import read_live
from buckets.monitor.words import FileWatch
from buckets.rule_files.yaml_rules import load_rule_files
from buckets.stores import store_path
from buckets.stores.location import location
from buckets.stores.store_path import StoreAway, StoreError, StorePath, store_error, store_of
from tests.spark.job_folder import JobFolder
from tests.stores.server import KEYS, Harm, harmful, in_environment

NAMES = ("a.json", "b.json", "of/1.json", "of/2.json", "of/more/3.arrow", "öß ü%20.json")


def seen(root: Path) -> dict[str, object]:
    """What can be asked of a folder, by paths from there."""

    def named(paths) -> list[str]:
        return sorted(path.relative_to(root).as_posix() for path in paths)

    files = [root / name for name in (*NAMES, "none.json")]
    return {
        "there": [path.exists() for path in (root, *files)],
        "files": [path.is_file() for path in (root, *files)],
        "folders": [path.is_dir() for path in (root, root / "of", root / "none", *files)],
        "inside": named(root.iterdir()),
        "json": named(root.glob("*.json")),
        "numbered": named((root / "of").glob("[0-9]*.json")),
        "below": named(root.glob("*/[0-9]*.json")),
        "all": named(path for path in root.rglob("*") if path.is_file()),
        "held": [path.read_bytes() for path in files[:-1]],
        "text": [path.read_text(encoding="utf-8") for path in files[:-1]],
        "sizes": [path.stat().st_size for path in files[:-1]],
        "by name": {path.name: size for path, size in sizes_in(root, "*.json").items()},
        "names": [(path.name, path.stem, path.suffix, path.parent.name) for path in files],
        "opened": [opened(path) for path in files[:-1]],
    }


def opened(path: Path) -> tuple[bytes, bytes, str]:
    with path.open("rb") as file, path.open(encoding="utf-8") as text:
        begin = file.read(3)
        file.seek(-4, 2)
        return begin, file.read(), text.readline()


def test_the_files_of_a_source_in_a_store_are_those_of_a_folder(bucket: str, tmp_path: Path):
    there, here = location(f"s3://{bucket}/source"), tmp_path / "source"
    names = ("b.jsonl", "a.jsonl", "_hidden.jsonl", "_SUCCESS", "deep/c ü%.jsonl", "deep/er/d.jsonl", ".deep/e.jsonl")
    for root, name in itertools.product((there, here), names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}")

    def source(root: Path, subfolders: bool) -> dict[str, object]:
        passed = sorted((path.relative_to(root).as_posix(), why) for path, why in passed_over(root, subfolders))
        files = sorted(path.relative_to(root).as_posix() for path in readable_files(root, subfolders))
        return {"files": files, "passed over": passed}

    for subfolders in (False, True):
        assert source(there, subfolders) == source(here, subfolders)
    times = dict(modified_files(there, True))
    assert len(times) == 4
    assert {path: modified_ms(path) for path in times} == times  # a list and a question for one say the same
    assert list(readable_files(there / "a.jsonl", False)) == [there / "a.jsonl"]


def test_of_a_source_in_a_store_what_is_not_read_is_named(bucket: str, tmp_path: Path):
    folder, said = location(f"s3://{bucket}/source"), []
    for name in ("a b.jsonl", "_b.jsonl", "_c/d.jsonl", "late.jsonl"):
        (folder / name).write_bytes(b"{}")
    (log := tmp_path / "spark" / "sources" / "0").mkdir(parents=True)
    entry = {"path": f"s3a://{bucket}/source/a%20b.jsonl", "timestamp": modified_ms(folder / "a b.jsonl") + 123}
    (log / "0").write_text(f"v1\n{json.dumps(entry | {'batchId': 0})}")

    with FileWatch(folder, False, tmp_path, said.append):
        assert sorted(line.split(": ")[0] for line in said) == [f"events {folder}/_b.jsonl", f"events {folder}/_c"]

    assert [line for line in said if "ending" in line] == [
        f"events {folder}/late.jsonl: is not read: it came while the job was ending; the next start takes it"
    ]
    assert len(said) == 3


def filled(root: Path) -> Path:
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(root / name, f"{name}\nand ä more\n")
    append_whole(root / "a.json", b"added")
    with written_whole(root / "of" / "1.json") as partial:
        partial.write_text("large\n")
    (root / "b.json").with_name("gone.json").write_bytes(b"x")
    (root / "gone.json").unlink()
    (root / "gone.json").unlink(missing_ok=True)
    return root


def test_a_folder_of_a_store_is_one_as_a_folder_of_a_machine(bucket: str, tmp_path: Path):
    there, here = filled(location(f"s3://{bucket}/some/folder")), filled(tmp_path / "folder")

    assert seen(there) == seen(here)
    first = here / "of" / "1.json"
    assert holds_more_than(there, there / "of" / "1.json") == holds_more_than(here, first) is True
    remove_tree(there)
    assert not there.exists()
    assert not any(there.iterdir())


def test_a_path_of_a_store_is_the_same_however_it_is_written_and_wherever_it_comes_from(bucket: str):
    path = location(f"s3://{bucket}/cp/")

    assert path == location(f"s3a://{bucket}/cp") == location(f"s3a:/{bucket}/cp") == location(str(path))
    assert str(path) == f"s3a://{bucket}/cp"
    assert pickle.loads(pickle.dumps(path)) == path.resolve() == path.absolute() == path
    assert {path: 1}[location(f"s3://{bucket}/cp")] == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("file:/tmp/cp", "only paths and object stores are taken"),
        ("hdfs://host/cp", "only paths and object stores are taken"),
        ("s3://", "write it as s3a://BUCKET/FOLDER"),
        ("s3://b/../c", "write it as s3a://BUCKET/FOLDER"),
        ("gs://b//c", "write it as gs://BUCKET/FOLDER"),
        ("s3://b/a%20b", "s3a://b/a%20b: '%' is not taken in an address"),
        ("s3:/b/a#1", "s3a://b/a#1: '#' is not taken in an address"),
        ("s3://b/a[1]", "is not taken in an address"),
    ],
)
def test_an_address_that_names_nothing_is_refused_in_a_line(written: str, said: str):
    with pytest.raises(BucketsError, match=re.escape(said)) as refused:
        location(written)
    assert "\n" not in refused.value.message


def test_a_bucket_is_no_object_and_that_is_said_at_once(bucket: str):
    path = location(f"s3://{bucket}")

    for act in (path.read_bytes, path.stat, path.tag, lambda: path.open("rb"), lambda: path.write_first(b"")):
        with pytest.raises(IsADirectoryError, match="is a bucket"):
            act()
    with pytest.raises(BucketsError, match=f"rule file {path}: is a directory; name a file"):
        load_rule_files(path)


def test_what_only_a_file_can_do_is_refused_and_makes_no_folder_of_that_name(bucket: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = location(f"s3://{bucket}/x")

    for act in (lambda: open(path), lambda: path.open("w"), path.touch, lambda: path.rename("y"), path.readlink):  # noqa: SIM115
        with pytest.raises(BucketsError, match="lies in an object store"):
            act()
    assert not any(tmp_path.iterdir())


def test_of_many_writers_of_one_object_one_is_the_first(bucket: str):
    path = location(f"s3://{bucket}/first")
    assert isinstance(path, StorePath)
    with ThreadPoolExecutor(16) as pool:
        first = list(pool.map(lambda number: write_first(path, b"%d" % number), range(16)))
    winner = first.index(True)
    assert first.count(True) == 1
    assert path.read_bytes() == b"%d" % winner

    _, tag = path.read_tagged()
    with ThreadPoolExecutor(16) as pool:
        over = list(pool.map(lambda number: path.write_over(b"over %d" % number, tag), range(16)))
    assert sum(each is not None for each in over) == 1


def test_a_store_that_is_not_there_or_refuses_is_said_in_a_line(bucket: str, monkeypatch):
    with pytest.raises(StoreError, match="there is no bucket not-there") as gone:
        location("s3://not-there/x").exists()
    assert "\n" not in gone.value.message
    assert isinstance(gone.value, OSError)


@pytest.mark.parametrize("ask", [StorePath.read_bytes, StorePath.iterdir, open_table])
@pytest.mark.parametrize(
    ("named", "changes", "said"),
    [
        ("No_Name", {}, "no bucket can be called No_Name; correct the name"),
        ("not-there", {}, "there is no bucket not-there; create it"),
        ("", {"AWS_ACCESS_KEY_ID": "nobody"}, "the store refuses it (No user exists with the provided access key ID)"),
        ("", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "the store refuses it; see who may"),
        ("", {"AWS_REGION": "eu-west-9"}, 'the region "eu-west-9" is wrong; expecting "us-east-1"); see the keys'),
    ],
)
def test_what_is_mistaken_is_said_at_once_as_the_store_says_it(
    bucket: str, monkeypatch, ask, named, changes, said: str
):
    path = location(f"s3://{named or bucket}/x")
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    store_of.cache_clear()
    pauses = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it is tried again"))
    monkeypatch.setattr(store_path, "time", pauses)
    with pytest.raises(StoreError) as refused:
        list(ask(path))
    store_of.cache_clear()
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    assert not isinstance(refused.value, StoreAway)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Error performing GET http://host:4010/b/x/403.json in 6 s - status code: 503 Service Unavailable: ", "503"),
        (
            "Error performing PUT http://host/token in 2 ms - Server returned non-2xx status code: 403 Forbidden: ",
            "who",
        ),
    ],
)
def test_what_a_store_says_is_known_by_its_answer_and_not_by_a_name(said, told):
    error = store_error(StorePath("s3a://b/x/403.json"), RuntimeError(said))
    assert told in error.message
    assert ("refuses" in error.message) == (told == "who")


@pytest.mark.parametrize("endpoint", ["localhost:9000", "localhost", "http://", "http://host:port", "not an address"])
def test_a_server_without_an_address_is_said_in_a_line(monkeypatch, endpoint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(BucketsError, match=r"AWS_ENDPOINT_URL: '.*' is not an address") as refused:
        location("s3://bucket/x").exists()
    assert "\n" not in refused.value.message


def test_a_record_in_a_store_that_does_not_answer_is_not_called_damaged(monkeypatch):
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("buckets.stores.store_path.PATIENCE_S", 0.1)
    checkpoint = location("s3://bucket/checkpoint")
    with pytest.raises(StoreError, match="see that it runs"):
        RecordFiles(checkpoint).read(records_folder(checkpoint) / "job.json", dict)
    with pytest.raises(StoreError, match="see that it runs"):
        read_live(checkpoint)


@pytest.mark.parametrize("name", ["schema", "rules"])
def test_a_store_that_does_not_answer_is_no_fault_of_the_configuration(monkeypatch, tmp_path: Path, name: str):
    """Else a supervisor, which sees that in the code, would not start the job again after an outage."""
    for variable, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("buckets.stores.store_path.PATIENCE_S", 0.1)
    job = JobFolder(tmp_path, **{name: f"s3://bucket/{name}.yaml"})

    with pytest.raises(StoreAway, match="see that it runs") as away:
        load_job(job.conf)
    assert away.value.exit_code == FAILED
    with pytest.raises(StoreAway, match="see that it runs"):
        load_list("s3://bucket/list.csv")


def test_writes_arrive_once_through_a_server_that_refuses_loses_and_cuts(store, bucket: str):
    """A write whose answer is lost is tried again, finds itself there, and knows it for its own."""
    harm = Harm(refused=0.2, lost=0.2, cut=0.2, slow_s=0.02)
    with harmful(store, harm) as bad, in_environment(bad):
        root = location(f"s3://{bucket}/harm")
        for number in range(15):
            path = root / f"{number}"
            assert write_first(path, b"mine %d" % number)
            assert not write_first(path, b"another's %d" % number)
            assert path.read_bytes() == b"mine %d" % number
    assert all(harm.counts.get(kind, 0) > 2 for kind in ("refused", "lost", "cut"))


def test_the_holder_of_a_checkpoint_asks_for_nothing_that_it_has_written_itself(bucket: str):
    checkpoint = location(f"s3://{bucket}/cp")
    records = BatchRecords(checkpoint)
    with Lock(checkpoint):
        for batch_id in range(210):
            records.keep(batch_id, BatchRecord(1, (), done=True))
        batches = records_folder(checkpoint) / "batches"
        assert records.newest() == 209
        known = HELD[checkpoint][batches / ".json"]
        assert sorted(known) == sorted(int(path.stem) for path in batches.iterdir())
        mine = [records.record(number) for number in range(210)]
    assert not HELD
    assert [records.record(number) for number in range(210)] == mine
    assert mine[:10] == [None] * 10
    assert records.newest() == 209
