"""Follows the files of the event schema and the Protobuf schema, and decides the terms of the next batch.

A change is accepted if a start of the job would accept it and all rules stay valid. It is recorded first in the job's
record and then in the terms of the first batch that uses it. So for a rerun, a restart, a replay and an explanation a
change while the job ran looks like one between two starts.
"""

from collections.abc import Callable
from typing import Any

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.config.job import Job
from buckets.config.lists import ListSettings
from buckets.errors import BucketsError
from buckets.events.decoded import PinnedProtobuf
from buckets.feeds.feed import Feed, ListRead, RuleFeed, WatchedFiles
from buckets.feeds.lists import ListBook, WholeList
from buckets.feeds.rules.rule_book import RuleBook, RuleFiles, RuleTable
from buckets.kafka.topics import KnownSchemas, pinned_fields
from buckets.stores.location import location
from buckets.stores.store_path import StorePath


class SchemaBook:
    """The event schema of the batches that begin from now on.

    Attributes:
        job: the job, with this event schema.
        terms: the terms of these batches.
        fault: why the files are not accepted, in one line; None if they are.
    """

    def __init__(
        self,
        job: Job,
        terms: Terms,
        book: RuleBook,
        say: Callable[[str], None] = lambda line: None,
        check: Callable[[Job], None] = lambda job: None,
    ) -> None:
        """Begin with the event schema and terms of a start.

        `say` receives a line when a change is accepted that a start would mention, and when one is refused. `check`
        runs the other checks of a start on a job with an event schema.
        """
        self.job, self.terms = job, terms
        self.fault: str | None = None
        self._checkpoint, self._book = Checkpoint(job.checkpoint), book
        self._check, self._say = check, say
        self._known = KnownSchemas(job.checkpoint)
        files = [job.schema_path, *([] if job.protobuf_path is None else [job.protobuf_path])]
        # If either is in a store, both are checked as rarely as that one.
        looked_at = next((file for file in files if isinstance(file, StorePath)), files[0])
        self._file = WatchedFiles(looked_at, job.with_schema_of_now, lambda _: files)
        self._changed: Job | None = None

    def start(self) -> None:
        """Start following the files."""
        self._file.start()
        self._changed = self._file.read()

    def take(self, batch_id: int) -> Terms:
        """Read the files and return the terms of a batch that begins now. Cost: one stat per file.

        A batch that has already begun keeps its terms, so new ones apply from the next batch on.
        """
        try:
            changed = self._changed = self._file.read() or self._changed
            if changed is not None and self._checkpoint.batches.record(batch_id) is None:
                self._changed, self.fault = None, None
                # The order of fields is part of it.
                is_other = changed.event_schema.model_dump_json() != self.terms.event_schema.model_dump_json()
                if is_other or changed.protobuf != self.job.protobuf:
                    self._go_on_with(changed, batch_id)
        except BucketsError as error:
            self._changed, self.fault = None, error.message
            self._say(f"the event schema stays as it is: {error.message}")
        if "protobuf" in self.job.settings.source.registered.values():
            # Fields keep their numbers from the schemas of earlier batches' messages.
            before = self.terms.protobuf or PinnedProtobuf()
            pinned = self._known.add_to(before, self.job)
            if pinned != before:
                self.terms = self.terms.model_copy(update={"protobuf": pinned})
        return self.terms

    def _go_on_with(self, job: Job, batch_id: int) -> None:
        """Use another event schema from a batch on."""
        basis, record = CheckpointIdentity.of(job), self._checkpoint.job
        record.identity(basis)
        self._check(job)
        self._book.check_schema(job.event_schema)
        terms, differences = Terms.of(job, pinned_fields(job)), [record.carried_over(basis)]
        if job.protobuf != self.job.protobuf:
            differences.append(f"values are read by {job.protobuf_path} as it is now")
        record.open(basis)
        self._known.forget()
        self.job, self.terms = job, terms
        self._book.follow_schema(job.event_schema)
        for difference in filter(None, differences):
            self._say(f"from batch {batch_id} on: {difference}")

    def to_json(self) -> dict[str, Any]:
        """Return the current event schema for observers of the job."""
        schema = self.terms.event_schema
        return {"name": schema.name, "version": schema.version, "fault": self.fault}


def open_rules(job: Job, on_remark: Callable[[str], None] = lambda remark: None) -> RuleFeed:
    """Return the feed of a job's rules, not yet started; `on_remark` receives each reason why it cannot be followed."""
    rules, schema = job.settings.rules, job.event_schema
    if rules.topic is not None:
        assert job.settings.kafka is not None
        from buckets.feeds.topics import RulesTopic

        return RulesTopic(job.settings.kafka, rules.topic, rules.rejected, rules.exported, on_remark)
    if rules.table is not None:
        return RuleTable(location(str(rules.table)), schema)
    assert rules.path is not None
    return RuleFiles(location(rules.path), schema)


def open_lists(job: Job, checkpoint: Checkpoint, on_remark: Callable[[str], None]) -> ListBook:
    """Return the lists of a job, not yet followed; `on_remark` receives each reason why one cannot be followed."""
    settings = job.settings
    feeds = {name: open_list(job, of_list, on_remark) for name, of_list in settings.lists.items()}
    return ListBook(checkpoint, feeds, on_remark, keep_all=settings.archive is not None)


def open_list(
    job: Job, settings: ListSettings, on_remark: Callable[[str], None] = lambda remark: None
) -> Feed[ListRead]:
    """Return the feed of a list, not yet started; `on_remark` is as for `open_lists`."""
    if settings.topic is not None:
        assert job.settings.kafka is not None
        from buckets.feeds.topics import ListTopic

        return ListTopic(job.settings.kafka, settings.topic, on_remark, settings.form)
    is_table = settings.kind == "delta"
    return WholeList(location(settings.path), settings.key, settings.match, is_table)
