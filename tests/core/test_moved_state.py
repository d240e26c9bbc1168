"""Where Spark looks for the schema of the state after a checkpoint was moved or copied."""

import json
import shutil
from pathlib import Path

import pytest

from buckets.checkpoint.source_offsets import check_found, check_readable, find_state
from buckets.errors import BucketsError
from buckets.stores.location import location

SCHEMA = "state/0/_stateSchema/default/0_7c6fea86"


def metadata_of(checkpoint: Path) -> Path:
    return checkpoint / "spark" / "state" / "0" / "_metadata" / "v2" / "0"


def schemas_of(checkpoint: Path) -> list[str]:
    version, _, written = metadata_of(checkpoint).read_text().partition("\n")
    assert version == "v2"
    return json.loads(written)["stateStoreInfo"][0]["stateSchemaFilePaths"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """What Spark writes of a state."""
    made = tmp_path / "old place" / "cp"
    stores = [{"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": [f"file:{made}/spark/{SCHEMA}"]}]
    for path, text in (
        (made / "spark" / SCHEMA, "schema"),
        (metadata_of(made), "v2\n" + json.dumps({"operatorInfo": {"operatorId": 0}, "stateStoreInfo": stores})),
        (metadata_of(made).with_name(".0.crc"), "checksum"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return made


@pytest.mark.parametrize("take", [shutil.move, shutil.copytree])
def test_a_checkpoint_in_another_place_names_its_own_files_and_no_checksum_of_before(checkpoint, take, tmp_path):
    there = tmp_path / "new" / "cp"
    there.parent.mkdir()
    take(checkpoint, there)
    with pytest.raises(BucketsError, match="was moved or copied here"):
        check_found(there)
    find_state(there)
    check_found(there)
    assert schemas_of(there) == [f"file:{there}/spark/{SCHEMA}"]
    assert not metadata_of(there).with_name(".0.crc").exists()


def test_one_that_is_where_it_was_or_has_no_state_yet_stays_as_it_is(checkpoint, tmp_path):
    before = metadata_of(checkpoint).read_bytes()
    find_state(checkpoint)
    find_state(tmp_path / "none")
    assert metadata_of(checkpoint).read_bytes() == before
    assert metadata_of(checkpoint).with_name(".0.crc").exists()
    assert not (tmp_path / "none").exists()


def test_one_that_is_named_by_a_way_round_has_not_been_moved(checkpoint):
    metadata = metadata_of(checkpoint)
    metadata.write_text(metadata.read_text().replace("/old place/cp/", "/old place/../old place/cp/"))
    before = metadata.read_bytes()
    check_found(checkpoint)
    find_state(checkpoint)
    assert metadata.read_bytes() == before


def test_a_schema_that_is_not_here_is_left_to_spark_to_miss(checkpoint):
    (checkpoint / "spark" / SCHEMA).unlink()
    moved = checkpoint.rename(checkpoint.with_name("moved"))
    find_state(moved)
    assert schemas_of(moved) == [f"file:{checkpoint}/spark/{SCHEMA}"]


@pytest.mark.parametrize("path", ["/a b/cp", "/a%b/cp", "/a[1]/cp", "s3a://bucket/a b/cp"])
def test_a_path_that_spark_quotes_is_refused_before_its_state_is_read(path):
    with pytest.raises(BucketsError, match="Spark reads the state of no checkpoint with") as refused:
        check_readable(location(path))
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("path", ["/tmp/öß-1.2_(x)/cp", "s3a://bucket/day=1/cp"])
def test_any_other_path_is_not(path):
    check_readable(location(path))
