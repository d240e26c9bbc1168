"""The file into which a command writes what it would print."""

from pathlib import Path

from buckets.errors import BucketsError
from buckets.files import write_whole


def write_result(option: str, path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Args:
        option: the option that names it, as in `--out`, for the error.
        path: the file.
        text: what it holds.

    Raises:
        BucketsError: it cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        message = f"{option} {path}: cannot be written ({error.strerror}); name a file in a folder that is yours"
        raise BucketsError(message) from None
