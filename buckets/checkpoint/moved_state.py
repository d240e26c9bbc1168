"""A checkpoint that was moved or copied: the places that Spark has written down whole are brought to where it is now.

What Spark says of its state names the file of the state's schema from the root on. Such a checkpoint would not be read
any more where it has been moved, and where it was copied as long as the original is there.
"""

import json
from pathlib import Path

from buckets.checkpoint.folders import spark_folder
from buckets.files import write_whole
from buckets.stores.store_path import StorePath

_STATE = "state"


def find_state(checkpoint: Path) -> None:
    """Let Spark find the schema of the state where a checkpoint lies now; who calls this holds the checkpoint.

    Args:
        checkpoint: the checkpoint, which need not have any state yet.
    """
    state = spark_folder(checkpoint) / _STATE
    operators = [*state.iterdir()] if state.is_dir() else []
    for folder in (operator / "_metadata" / "v2" for operator in operators):
        for metadata in [*folder.iterdir()] if folder.is_dir() else []:
            if metadata.name.isdecimal():
                _find_schemas(state, metadata)


def _find_schemas(state: Path, metadata: Path) -> None:
    """Rewrite what is said of an operator's state, if it names files elsewhere that are here."""
    version, _, written = metadata.read_text(encoding="utf-8").partition("\n")
    data = json.loads(written)
    is_changed = False
    for store in data["stateStoreInfo"]:
        there = store.get("stateSchemaFilePaths", [])
        here = [_here(state, path) for path in there]
        is_changed |= here != there
        store["stateSchemaFilePaths"] = here
    if is_changed:
        # Hadoop's checksum of the file as it was; without one nothing is compared.
        metadata.with_name(f".{metadata.name}.crc").unlink(missing_ok=True)
        write_whole(metadata, f"{version}\n{json.dumps(data, separators=(',', ':'))}")


def _here(state: Path, written: str) -> str:
    """Return where a file of the state is, as Spark writes it; one that is not in this checkpoint stays as it was."""
    _, found, within = written.rpartition(f"/{state.parent.name}/{state.name}/")
    path = state / within
    if not found or not path.is_file():
        return written
    return str(path) if isinstance(path, StorePath) else f"file:{path.absolute()}"
