"""Moves a checkpoint: rewrites the absolute paths in which Spark names the schema of its state."""

import json
from collections.abc import Iterator
from pathlib import Path

from buckets.checkpoint.source_offsets import spark_folder
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.stores.store_path import StorePath

_STATE = "state"


def find_state(checkpoint: Path) -> None:
    """Let Spark find the schema of the state where a checkpoint lies now; who calls this holds the checkpoint."""
    for metadata, text in _elsewhere(checkpoint):
        # Hadoop's checksum of the file as it was; without one nothing is compared.
        metadata.with_name(f".{metadata.name}.crc").unlink(missing_ok=True)
        write_whole(metadata, text)


def check_found(checkpoint: Path) -> None:
    """See that Spark finds the schema of the state, before it is read by somebody who may not write.

    Raises:
        BucketsError: the checkpoint was moved, and no job has been started on it since.
    """
    for metadata, _ in _elsewhere(checkpoint):
        message = (
            f"checkpoint {checkpoint} was moved or copied here, and {metadata} still names the place before; start the "
            "job on it once, or export it, and ask again"
        )
        raise BucketsError(message)


def _elsewhere(checkpoint: Path) -> Iterator[tuple[Path, str]]:
    """Yield what is said of the state and names files elsewhere that are here, and what is to be said."""
    state = spark_folder(checkpoint) / _STATE
    operators = [*state.iterdir()] if state.is_dir() else []
    for folder in (operator / "_metadata" / "v2" for operator in operators):
        for metadata in [*folder.iterdir()] if folder.is_dir() else []:
            if metadata.name.isdecimal():
                version, _, written = metadata.read_text(encoding="utf-8").partition("\n")
                data = json.loads(written)
                for store in data["stateStoreInfo"]:
                    store["stateSchemaFilePaths"] = [
                        _here(state, path) for path in store.get("stateSchemaFilePaths", [])
                    ]
                if data != json.loads(written):
                    yield metadata, f"{version}\n{json.dumps(data, separators=(',', ':'))}"


def _here(state: Path, written: str) -> str:
    """Return where a file of the state is, as Spark writes it; one that is not in this checkpoint stays as it was."""
    _, found, within = written.rpartition(f"/{state.parent.name}/{state.name}/")
    path = state / within
    if not found or not path.is_file():
        return written
    if isinstance(path, StorePath):
        return str(path)
    named = Path(written.removeprefix("file:"))
    return written if named.is_file() and named.samefile(path) else f"file:{path.absolute()}"
