"""A checkpoint: the folder from which a job goes on."""

from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.cuts import Cuts
from buckets.checkpoint.driver_state import DriverState
from buckets.checkpoint.imports import Imports
from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.rule_versions import RuleVersions


class Checkpoint:
    """All records of a checkpoint, for callers that need more than one kind of them.

    Attributes:
        path: the folder.
        job: what the checkpoint was made for.
        versions: the versions of the rules.
        batches: the records of its batches.
        cuts: where the stream was cut into batches, and what scored each.
        driver: the state that the driver keeps besides the shards'.
        lists: the versions of the lists.
        imports: by which its state came from other checkpoints.
    """

    def __init__(self, path: Path) -> None:
        """Look at a checkpoint; nothing is written yet."""
        self.path = path
        self.job = JobRecord(path)
        self.versions = RuleVersions(path)
        self.batches = BatchRecords(path)
        self.cuts = Cuts(path)
        self.driver = DriverState(path)
        self.lists = ListVersions(path)
        self.imports = Imports(path)

    def check(self) -> None:
        """See that the newest records are there and whole, before anything is done with them.

        Raises:
            BucketsError: one is gone or damaged.
        """
        self.versions.latest_rule_set()
        for name in self.batches.newest_lists():
            self.lists.latest(name)
        self.batches.all_terms()
        self.batches.check_beside()
        self.driver.check()
