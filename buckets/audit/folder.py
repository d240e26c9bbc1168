"""The checkpoint of an audit and the folder of its tables, which belong together.

CHECKPOINT/buckets/audit.json        identity, and the table that each topic goes to
CHECKPOINT/spark/                    Spark's own
PATH/_buckets.json                   the identity of the checkpoint whose tables these are
PATH/alerts/ …                       the tables
"""

import uuid
from collections.abc import Mapping
from typing import Any

from buckets.audit.tables import TRANSACTIONS, audit_tables
from buckets.checkpoint.lock import check_free
from buckets.checkpoint.record_files import OwnedFolder, RecordFiles
from buckets.checkpoint.source_offsets import lock_file, records_folder, spark_folder
from buckets.config.job import Job
from buckets.config.settings import AuditSettings
from buckets.errors import BucketsError, ConfigurationError
from buckets.files import holds_more_than, write_first, write_whole
from buckets.outputs.columns import VERDICTS
from buckets.stores.location import location

FORMAT = 1


def audit_settings(job: Job) -> AuditSettings:
    """Return the `audit` part of a configuration."""
    if job.settings.audit is None:
        message = (
            "the configuration has no `audit`, which says where topics are kept as tables; "
            "add `audit: {path: audit, checkpoint: audit-checkpoint}`"
        )
        raise ConfigurationError(message)
    return job.settings.audit


def topics_of(job: Job) -> dict[str, str]:
    """Return the topics to keep, each with the name of its table."""
    topics = {topic: output for output, topic in job.settings.output.topics_in_use().items()}
    if job.settings.verdicts.topic is not None:
        topics[job.settings.verdicts.topic] = VERDICTS
    return dict.fromkeys(job.settings.source.all_topics, TRANSACTIONS) | topics


class AuditFolder:
    """A checkpoint and the folder of its tables."""

    def __init__(self, settings: AuditSettings) -> None:
        self.tables = location(settings.path)
        self.checkpoint = location(settings.checkpoint)
        self.spark_checkpoint = spark_folder(self.checkpoint)
        self._records = RecordFiles(
            self.checkpoint, "restore it from a copy of the checkpoint, or name a new audit.checkpoint and audit.path"
        )
        self._audit = records_folder(self.checkpoint) / "audit.json"
        self._owned = OwnedFolder(self.tables, "audit.path")

    def topics(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the topics to read, each with its table: the wanted ones, and all that were ever read.

        A topic that is no longer configured may still hold unread messages.
        """
        written: dict[str, str] = self._written()["topics"] if self._audit.exists() else {}
        for topic, table in wanted.items():
            if written.get(topic, table) != table:
                message = (
                    f"checkpoint {self.checkpoint} has read topic {topic} into table {written[topic]}, not {table}; go "
                    "back to that, or name a new audit.checkpoint and a new audit.path"
                )
                raise BucketsError(message)
        return {**written, **wanted}

    def check(self) -> None:
        """Check that checkpoint and folder are new or belong together, and that no other process uses them."""
        check_free(self.checkpoint)
        tables, checkpoint = self.tables.resolve(), self.checkpoint.resolve()
        if tables.is_relative_to(checkpoint) or checkpoint.is_relative_to(tables):
            message = (
                f"audit.path {self.tables} and audit.checkpoint {self.checkpoint} lie in each other; name two folders"
            )
            raise BucketsError(message)
        if not self._audit.exists() and holds_more_than(self.checkpoint, self._audit, [lock_file(self.checkpoint)]):
            message = (
                f"checkpoint {self.checkpoint} holds something that is not a checkpoint of an audit; name a new folder "
                "as audit.checkpoint"
            )
            raise BucketsError(message)
        self._owned.is_of(self._written()["id"] if self._audit.exists() else None)
        if not any((self.spark_checkpoint / "offsets").glob("[0-9]*")):
            return
        gone = [table for table in audit_tables(self._written()["topics"].values()) if not self.has_table(table)]
        if gone:
            message = (
                f"audit {self.tables} does not hold the table {gone[0]} that checkpoint {self.checkpoint} has filled; "
                "put it back, or name a new audit.path and a new audit.checkpoint to read all that topics hold"
            )
            raise BucketsError(message)

    def _written(self) -> dict[str, Any]:
        def record_of(written: Any) -> dict[str, Any]:
            is_known = written["format"] == FORMAT  # another format is refused below
            return {name: written[name] for name in ("format", "id", "topics")} if is_known else dict(written)

        written = self._records.read(self._audit, record_of)
        if written["format"] != FORMAT:
            message = (
                f"checkpoint {self.checkpoint} has format {written['format']}, and this release reads format {FORMAT}; "
                "name a new audit.checkpoint and a new audit.path"
            )
            raise BucketsError(message)
        return written

    def open(self) -> str:
        """Claim checkpoint and folder for this audit, or continue with them.

        Returns:
            The identity of the checkpoint, the same at every start.
        """
        self.check()
        if not self._audit.exists():
            write_first(self._audit, self._sealed(uuid.uuid4().hex, {}))
        identity = str(self._written()["id"])
        self._owned.take(identity)
        return identity

    def keep_topics(self, topics: Mapping[str, str]) -> None:
        """Record which topics are read and into which tables; the tables must exist."""
        written = self._written()
        if written["topics"] != topics:
            write_whole(self._audit, self._sealed(written["id"], topics))

    def _sealed(self, identity: str, topics: Mapping[str, str]) -> bytes:
        record = {"format": FORMAT, "id": identity, "topics": dict(topics)}
        return self._records.sealed(self._audit, record, indent=1)

    def has_table(self, name: str) -> bool:
        """Return whether a table exists."""
        return any((self.tables / name / "_delta_log").glob("[0-9]*"))
