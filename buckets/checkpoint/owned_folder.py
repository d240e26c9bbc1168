"""A folder of tables that belongs to one checkpoint, which the file `_buckets.json` in it names."""

from pathlib import Path
from typing import Any

from buckets.checkpoint.seal import seal_json, unseal_json
from buckets.errors import BucketsError, first_line
from buckets.files import holds_more_than, write_first, write_whole

OWNER = "_buckets.json"
"""The file is there before any table."""


class OwnedFolder:
    """A folder that is new, or belongs to a checkpoint."""

    def __init__(self, path: Path, setting: str, life: str | None = None) -> None:
        """Write nothing yet; `setting` names the folder, and `life` is that of its checkpoint, see `JobRecord.life`."""
        self.path = path
        self.owner = path / OWNER
        self._setting = setting
        self._life = life

    def identity(self) -> str | None:
        """Return the identity of the checkpoint that it belongs to; None where it belongs to none."""
        return str(self._written()["checkpoint"]) if self.owner.exists() else None

    def _written(self) -> dict[str, Any]:
        """Return the record of the owner.

        Raises:
            BucketsError: it cannot be read.
        """
        try:
            written = unseal_json(self.owner.read_bytes())
            if isinstance(written, dict) and "checkpoint" in written:
                return written
            reason = "it names no checkpoint"
        except (OSError, ValueError) as error:
            reason = first_line(error)
        message = (
            f"{self._setting} {self.path}: {OWNER} in it, which names the checkpoint that it belongs to, cannot be "
            f"read ({reason}); restore that file from a copy"
        )
        raise BucketsError(message)

    def is_of(self, identity: str | None) -> bool:
        """Return whether it belongs to a checkpoint; None is one that is new. If not, it is nobody's yet.

        Raises:
            BucketsError: it belongs to another one, or holds something else.
        """
        # Looked at before the owner's file, which is there before any table of somebody who starts meanwhile.
        is_somebodys = holds_more_than(self.path, self.owner)
        if self.owner.exists():
            written = self._written()
            if written["checkpoint"] != identity:
                message = (
                    f"{self._setting} {self.path} holds tables of another checkpoint, which this one would mix with "
                    f"its own; name a new {self._setting}, or go on with the checkpoint that it belongs to"
                )
                raise BucketsError(message)
            if written.get("life") != self._life:
                message = (
                    f"{self._setting} {self.path} goes on with a checkpoint into which the state of this one, or one "
                    "before it, was imported; go on with that, or carry its state back with `buckets state export` "
                    "and `buckets state import`"
                )
                raise BucketsError(message)
            return True
        if is_somebodys:
            message = (
                f"{self._setting} {self.path} holds something that this program did not write; name a new folder as "
                f"{self._setting}"
            )
            raise BucketsError(message)
        return False

    def take(self, identity: str) -> None:
        """Make it the folder of a checkpoint, if it is not that already.

        Raises:
            BucketsError: another one has taken it meanwhile.
        """
        if self.owner.exists() or not write_first(self.owner, self._record(identity)):
            self.is_of(identity)

    def hand_over(self, identity: str) -> None:
        """Make it the folder of a checkpoint, whosever it is."""
        write_whole(self.owner, self._record(identity))

    def _record(self, identity: str) -> bytes:
        return seal_json({"checkpoint": identity} | ({} if self._life is None else {"life": self._life}))
