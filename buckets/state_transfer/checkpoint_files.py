"""The files of a checkpoint besides its state: which of them are carried over, and Spark's notes on the source.

Spark keeps for each batch the offset in the source where it ends. The new checkpoint begins after the last batch, so
it needs the offsets of that batch, in the form in which Spark wrote them, and what the source has noted itself: a
source of files lists all files that it has ever taken.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.folders import records_folder, spark_folder
from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.errors import BucketsError
from buckets.files import write_whole

_LEFT_OUT = ("in_use", "live.json", "job.json")
"""Records of one checkpoint alone."""
_HEADER_LINES = 2
"""What stands before the offsets in a file of them: the version of its form, and settings of the batch."""


def last_batch(checkpoint: Path) -> int:
    """Return the last batch that has ended.

    Raises:
        BucketsError: none has, or one has begun that has not ended.
    """
    ended = SourceOffsets(checkpoint).ended
    if ended is None:
        message = f"checkpoint {checkpoint} holds no state yet: no batch has ended; there is nothing to carry over"
        raise BucketsError(message)
    begun = BatchRecords(checkpoint).newest()
    if begun is not None and begun > ended:
        message = (
            f"checkpoint {checkpoint}: batch {begun} has begun and not ended, and may be half written; start the job "
            "once more with its old settings until it has ended, stop it, and export then"
        )
        raise BucketsError(message)
    return ended


def carried_files(checkpoint: Path, batch_id: int) -> Iterator[Path]:
    """Yield the files that are carried over as they are, relative to the checkpoint."""
    spark = spark_folder(checkpoint)
    files = [file for file in sorted(records_folder(checkpoint).rglob("*")) if file.name not in _LEFT_OUT]
    files += sorted((spark / "sources").rglob("*"))
    # Spark looks for the batch before the last one too.
    files += [file for number in (batch_id - 1, batch_id) if (file := spark / "offsets" / str(number)).exists()]
    for file in files:
        if file.is_file() and not file.name.startswith("."):
            yield file.relative_to(checkpoint)


def with_offsets(own: str, carried: str) -> str:
    """Put the offsets that are carried over into the file of a batch of the new checkpoint, under its settings.

    Raises:
        BucketsError: Spark wrote one of them in a form that is not known here.
    """
    own_lines, carried_lines = own.split("\n"), carried.split("\n")
    if own_lines[0] != "v1" or carried_lines[0] != "v1" or len(carried_lines) <= _HEADER_LINES:
        message = f"Spark's file of offsets has a form that this release does not know ({carried_lines[0][:40]!r})"
        raise BucketsError(message)
    return "\n".join([*own_lines[:_HEADER_LINES], *carried_lines[_HEADER_LINES:]])


def renumber_batch(spark: Path, carried: Path, batch_id: int) -> None:
    """Make of Spark's part of a checkpoint, of one batch 0, one whose last batch is that of the one carried over.

    The state after a batch is a snapshot of each partition's store, whose name is the number of the next batch; nothing
    in it says so again.

    Args:
        spark: Spark's folder of the new checkpoint.
        carried: what is carried over of that of the old one: the notes of its source, offsets of its last batches.
        batch_id: the last batch.

    Raises:
        BucketsError: Spark wrote something in a form that is not known here.
    """
    own = (spark / "offsets" / "0").read_text(encoding="utf-8")
    commit = (spark / "commits" / "0").read_text(encoding="utf-8")
    for folder in ("offsets", "commits", "sources"):
        shutil.rmtree(spark / folder)
    if (carried / "sources").exists():
        shutil.copytree(carried / "sources", spark / "sources")
    for file in (carried / "offsets").iterdir():
        write_whole(spark / "offsets" / file.name, with_offsets(own, file.read_text(encoding="utf-8")))
    write_whole(spark / "commits" / str(batch_id), commit)
    for partition in (spark / "state" / "0").glob("[0-9]*"):
        _renumber_store(partition, batch_id + 1)


def _renumber_store(partition: Path, version: int) -> None:
    snapshot = partition / "1.zip"
    if not snapshot.exists():
        message = f"Spark has written no snapshot of the state in {partition}, as this release expects of it"
        raise BucketsError(message)
    for other in partition.glob("*.changelog"):
        other.unlink()
    # With another name, Hadoop's checksum file does not belong to it any more.
    for checksum in partition.glob(".*.crc"):
        checksum.unlink()
    snapshot.rename(partition / f"{version}.zip")
