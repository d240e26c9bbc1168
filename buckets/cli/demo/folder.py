"""The folder of a demo: it may hold an earlier one, which is replaced, and gets an example configuration of its own."""

import json
from collections.abc import Mapping
from pathlib import Path

from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.resources import DEFAULT_SCHEMA, resource
from buckets.stores.location import in_file_system


def check_demo_folder(out: Path, mark: str) -> None:
    """See that a folder is empty, or holds an earlier demo by its mark.

    Raises:
        BucketsError: it holds something else, or is an address.
    """
    if in_file_system(out).exists() and not (out / mark).exists() and (not out.is_dir() or any(out.iterdir())):
        message = f"output {out} holds something that is no earlier demo; name another folder with --out"
        raise BucketsError(message)


def write_demo_conf(out: Path, example: str, changes: Mapping[str, str]) -> Path:
    """Write an example of `conf/` into the folder of a demo, with other texts in place of some, and return the file."""
    text = resource(f"conf/{example}").read_text(encoding="utf-8")
    for old, new in {"../schemas/transaction.yaml": json.dumps(str(DEFAULT_SCHEMA)), **changes}.items():
        text = text.replace(old, new)
    write_whole(out / "conf.yaml", text)
    return out / "conf.yaml"
