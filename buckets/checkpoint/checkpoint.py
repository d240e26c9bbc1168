"""A checkpoint: the folder from which a job goes on."""

from pathlib import Path

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.cuts import Cuts
from buckets.checkpoint.driver_state import DriverState
from buckets.checkpoint.imports import Imports
from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.clock import epoch_ms
from buckets.rules.warmth import Warmth, rules_warmth


class Checkpoint:
    """All records of a checkpoint, for callers that need more than one kind of them."""

    def __init__(self, path: Path) -> None:
        """Write nothing yet."""
        self.path = path
        self.job = JobRecord(path)
        self.versions = RuleVersions(path)
        self.batches = BatchRecords(path)
        self.cuts = Cuts(path, self.batches)
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


def read_warmth(checkpoint: Path) -> dict[str, Warmth]:
    """Return since when each rule in force is complete, by its id; empty where no batch has begun.

    Nothing is taken from a job that runs on the checkpoint.
    """
    kept = Checkpoint(checkpoint)
    rule_set = kept.versions.latest_rule_set()
    return {} if rule_set is None else rules_warmth(rule_set, kept.batches.arrived(), epoch_ms())
