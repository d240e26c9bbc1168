"""Outputs as files of JSON lines in a folder, which are put in place together when all of them are whole."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa

from buckets.files import partial_of
from buckets.outputs import columns
from buckets.outputs.columns import EVALUATIONS
from buckets.outputs.json_lines import JsonLines

OUTPUTS = (EVALUATIONS, *(output.name for output in columns.OUTPUTS if output.name != EVALUATIONS))


class JsonFiles:
    """Files that are written, and that replace earlier ones at the end; without an end they are removed.

    Attributes:
        lines: how many lines each output has.
    """

    def __init__(self, folder: Path, writer: JsonLines) -> None:
        """Write into a folder that is there.

        Args:
            folder: the folder.
            writer: what makes lines of rows.
        """
        self.lines = dict.fromkeys(OUTPUTS, 0)
        self._paths = {output: folder / f"{output}.jsonl" for output in OUTPUTS}
        self._writer = writer
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "JsonFiles":
        """Open them."""
        for output, path in self._paths.items():
            self._files[output] = self._open.enter_context(partial_of(path).open("wb"))
        return self

    def write(self, output: str, rows: pa.Table) -> None:
        """Write rows of an output, which come after those before; others than `OUTPUTS` are left out."""
        if output in self._files:
            for line in self._writer.lines(output, rows):
                self._files[output].write(f"{line}\n".encode())
                self.lines[output] += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put them in place, or remove them."""
        self._open.close()
        for path in self._paths.values():
            if error is None:
                partial_of(path).replace(path)
            else:
                partial_of(path).unlink(missing_ok=True)
