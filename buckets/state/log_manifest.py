"""The manifest of a shard's log: which segments are live, and what the batches before left.

Every batch that changes something writes one, in the same commit as its segments. Its *stamp*, a random text, names the
state after that batch and no other: a batch that failed, or another attempt at the same batch, has another stamp.
"""

import json
from dataclasses import asdict, dataclass

from buckets.errors import BucketsError

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class LogManifest:
    """What a shard's log is, after a batch.

    Attributes:
        lineage: the shard's, random; copies of a checkpoint share it, until their stamps part.
        first: the number of the oldest live segment.
        next: the number of the next new one.
        is_whole: whether the log holds all there is, so that nothing has to be asked of the store.
        history: the last stamps, oldest first, each with the segment from which all that came after it can be read.
    """

    lineage: str
    first: int
    next: int
    is_whole: bool
    history: tuple[tuple[str, int], ...]

    @property
    def stamp(self) -> str:
        """The stamp of the batch that wrote it."""
        return self.history[-1][0]

    @property
    def useful_stamps(self) -> list[str]:
        """The stamps with which a cache can be brought up to date, the newest last."""
        return [stamp for stamp, segment in self.history if segment >= self.first]

    def resumes_at(self, stamp: str) -> int:
        """Return the segment from which a cache of a useful stamp is brought up to date."""
        return dict(self.history)[stamp]

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps({"version": MANIFEST_VERSION} | asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "LogManifest":
        """Read what `encode` wrote.

        Raises:
            BucketsError: a later release wrote it.
        """
        read = json.loads(data)
        version = read.pop("version")
        if version != MANIFEST_VERSION:
            message = (
                f"the state's log has a manifest of version {version}, and this release reads "
                f"{MANIFEST_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
            )
            raise BucketsError(message)
        history = tuple((stamp, segment) for stamp, segment in read.pop("history"))
        return cls(history=history, **read)
