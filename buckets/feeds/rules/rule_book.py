"""Numbers the versions of the rules, and decides which version evaluates which batch.

What a feed has found becomes a version in this order: refusals and exports are published, then the version is written
together with the feed's position. If the process dies in between, no change is lost: it is read again, with the same
result.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from deltalake import DeltaTable

from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.clock import epoch_ms
from buckets.config.engine import EngineSettings, raw_window_fault
from buckets.config.lists import list_fault
from buckets.delta.whole_table import open_named, query
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleFeed, RuleRead, WatchedFiles, watched_table
from buckets.feeds.lists import ListBook
from buckets.feeds.rules.history import RuleHistory
from buckets.rule_files.flink_rules import ChangeNote, read_change_notes
from buckets.rule_files.yaml_rules import load_rule_files, rule_files
from buckets.rules.backfill import Backfill, Wanted
from buckets.rules.change import RuleChange, changes_between, needs_put, parse_change
from buckets.rules.completeness import Filled, Stretches, joined
from buckets.rules.flink_message import check_against_schema
from buckets.rules.renaming import check_names, renamed_rules
from buckets.rules.revision import Refusal, Revision, deleted, revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet, encode_rule_set
from buckets.validation import field_name

T = TypeVar("T")


class RefusedRules(BucketsError):
    """Faults of the rules as they are; the text is the first refusal."""

    def __init__(self, refused: Sequence[Refusal]) -> None:
        """Take the refusals, at least one."""
        super().__init__(f"rules {refused[0].origin}: {refused[0].reason}")
        self.refused = list(refused)


class WholeRules(ABC, RuleFeed, Generic[T]):
    """A feed of files or a table, read again after each change; the rule book reports refusals."""

    def __init__(self, path: Path, watched: WatchedFiles[T], schema: EventSchema) -> None:
        """Follow the rules at `path`; they are checked against `schema`."""
        self.origin, self._path, self._watched, self._schema = str(path), path, watched, schema

    def start(self, position: TopicPosition | None) -> None:
        """Read the rules for the first batch."""
        self._watched.start()

    def read(self, in_force: Sequence[Rule] = ()) -> RuleRead:
        """Return the differences from the rules in force, once after each change; invalid rules change nothing."""
        try:
            there = self._watched.read()
        except RefusedRules as error:
            return RuleRead(refused=error.refused)
        except BucketsError as error:
            return RuleRead(refused=[Refusal(self.origin, error.message, "")])
        return RuleRead() if there is None else RuleRead(self._changes(in_force, there))

    def follow_schema(self, schema: EventSchema) -> None:
        """Check rules against another event schema, including the present ones, which may have been refused."""
        self._schema = schema
        self._watched.read_again()

    @abstractmethod
    def _changes(self, in_force: Sequence[Rule], there: T) -> list[RuleChange]:
        """Return the differences between the current contents and the rules in force."""


class RuleFiles(WholeRules[tuple[Rule, ...]]):
    """A feed of the rules in a file or folder."""

    def __init__(self, path: Path, schema: EventSchema) -> None:
        """Watch `path`; rules are checked against `schema`."""
        files = WatchedFiles(path, lambda: load_rule_files(path, self._schema), rule_files)
        super().__init__(path, files, schema)

    def _changes(self, in_force: Sequence[Rule], there: tuple[Rule, ...]) -> list[RuleChange]:
        owner, notes = "", dict[str, ChangeNote]()
        with contextlib.suppress(OSError, KeyError):
            owner = self._path.owner()
        with contextlib.suppress(BucketsError):  # meanwhile the folder, with the notes, was deleted
            notes = read_change_notes(rule_files(self._path))
        by_whom = {"author": owner, "reason": f"{self._path.name} was changed", "time": self._watched.changed_ms}
        return [
            change.model_copy(update=asdict(notes[subject])) if (subject := change.subject) in notes else change
            for change in changes_between(in_force, there, **by_whom, origin=self.origin)
        ]


NO_RULES = RuleSet(0, (), (), {})


class BackfillSource:
    """The source of requests to backfill rules from the archive; this one, for jobs without an archive, has none."""

    can_fill = False  # Whether there is an archive

    def start(self) -> None:
        """Start looking for requests."""

    def wanted(self) -> Sequence[Wanted]:
        """Return the requested rules, without waiting."""
        return ()

    def taken(self, wanted: Wanted) -> None:
        """Record that a request is part of a version of the rules and is done."""

    def stop(self) -> None:
        """Stop looking."""


class RuleBook:
    """Turns a feed's reports into numbered versions; each batch gets one, the same one on a rerun."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        feed: RuleFeed,
        schema: EventSchema,
        engine: EngineSettings,
        on_refused: Callable[[Sequence[Refusal]], None] = lambda refusals: None,
        history: RuleHistory | None = None,
        lists: ListBook | None = None,
        backfills: BackfillSource | None = None,
    ) -> None:
        """Number the rules of a feed; `on_refused` is called with refused changes."""
        self._versions, self._batches = checkpoint.versions, checkpoint.batches
        self._feed, self._schema, self._engine = feed, schema, engine
        self._on_refused, self._history = on_refused, history
        self._lists = ListBook(checkpoint, {}) if lists is None else lists
        self._backfills = BackfillSource() if backfills is None else backfills
        self._current = self._versions.latest_rule_set() or NO_RULES
        self._gone = self._versions.gone_rules()
        self._untaken: RuleRead | None = None

    def start(self) -> None:
        """Start following the feed and the lists."""
        check_names(self._current, self._schema)
        self._lists.start()
        self._backfills.start()
        self._feed.start(self._versions.position(self._feed.origin))
        if self._history is not None:
            self._history.record()

    def stop(self) -> None:
        """Stop following the feed and the lists."""
        self._feed.stop()
        self._lists.stop()
        self._backfills.stop()
        if self._history is not None:
            self._history.close()

    def check_schema(self, schema: EventSchema) -> None:
        """Check that all rules that are valid now stay valid with another event schema."""
        check_names(self._current, schema)
        for rule in renamed_rules(self._current, schema.new_names).rules:
            fault = check_against_schema(rule, schema)
            if fault is not None and check_against_schema(rule, self._schema) is None:
                message = f"rule {rule.rule_id!r} would not be valid: {field_name(fault[0])}: {fault[1]}"
                raise BucketsError(message)

    def follow_schema(self, schema: EventSchema) -> None:
        """Check rules against another event schema from the next batch on, including refused ones."""
        self._schema = schema
        self._feed.follow_schema(schema)

    @property
    def origin(self) -> str:
        """The origin of the rules, in words."""
        return self._feed.origin

    @property
    def fault(self) -> str | None:
        """Why the feed cannot be followed at the moment, in one line; None while it is followed."""
        return self._feed.fault

    @property
    def in_force(self) -> RuleSet:
        """The newest version of the rules."""
        return self._current

    def for_batch(self, batch_id: int) -> RuleSet:
        """Return the rules of a batch, recorded before it runs: on a rerun the same as before, else those in force."""
        record = self._batches.record(batch_id)
        if record is not None:
            version = record.ruleset_version
            return self._current if version == self._current.version else self._versions.rule_set(version)
        self._take_changes(batch_id)
        lists = dict(self._lists.newest())
        self._batches.keep(batch_id, BatchRecord(self._current.version, (), done=False, lists=lists))
        return self._current

    def _take_changes(self, batch_id: int) -> None:
        """Make a new version if the feed reports changes or fields were renamed."""
        current = renamed_rules(self._current, self._schema.new_names)
        read = self._untaken = self._untaken or self._feed.read(current.rules)
        record = self._batches.record(batch_id - 1) if current.fills else None
        done = set() if record is None else {number for number, filled in record.fills.items() if filled.done}
        backfill = Backfill.of(current, done, self._backfills.can_fill)
        revision = self._revise(read, backfill.rule_set, batch_id)
        revision = backfill.go_on(revision, self._backfills.wanted(), batch_id, self._schema)
        refused = [*read.refused, *revision.refused]
        if refused:
            self._feed.refuse(refused)
        if revision.export:
            self._feed.export(revision.rule_set)
        self._keep(revision, read.position, batch_id)
        for wanted in backfill.taken:
            self._backfills.taken(wanted)
        self._untaken = None
        if refused:
            self._on_refused(refused)

    def _keep(self, revision: Revision, position: TopicPosition | None, batch_id: int) -> None:
        """Write the result of the changes; the first batch gets a version even without rules."""
        origin, rule_set = self._feed.origin, revision.rule_set
        if rule_set.version == 0:
            rule_set = RuleSet(1, (), (), {})
        if rule_set is not self._current:
            if rule_set.version == self._current.version:  # Only names of fields have changed.
                rule_set = replace(rule_set, version=rule_set.version + 1)
            gone = self._gone | deleted(revision.made)
            self._versions.keep(rule_set, revision.made, batch_id, position, origin, gone)
            self._current, self._gone = rule_set, gone
            if self._history is not None:
                self._history.record()
        elif position is not None:
            self._versions.keep_position(position, origin, rule_set.version)

    def _revise(self, read: RuleRead, before: RuleSet, batch_id: int) -> Revision:
        """Apply a feed's changes to the rule set; keep the previous one if a batch could not carry the new one."""
        if not read.asked:
            return Revision(before)
        schema, engine, arrived = self._schema, self._engine, self._arrived(batch_id - 1)

        def fault(rule: Rule) -> str | None:
            return list_fault(rule, self._lists.known) or raw_window_fault(rule, engine, schema)

        revision = revise(before, read.asked, schema, arrived, engine.allowed_lateness, self._gone, fault)
        try:
            encode_rule_set(revision.rule_set)
        except BucketsError as error:
            if self._current.version == 0:
                raise
            refused = [Refusal(change.origin, error.message, change.to_json()) for change in read.asked]
            return Revision(before, refused=refused)
        return revision

    def refusals(self, asked: Sequence[RuleChange]) -> Sequence[Refusal]:
        """Return the changes that the next batch would refuse if no others came first."""
        return self._revise(RuleRead(list(asked)), self._current, 0).refused

    def _arrived(self, batch_id: int) -> Stretches:
        """Return the event times that had arrived by the end of a batch."""
        record = self._batches.before(batch_id + 1)
        return () if record is None else record.arrived

    def done(
        self,
        batch_id: int,
        rule_set: RuleSet,
        arrived: Stretches,
        fills: Mapping[int, Filled] | None = None,
        driver: int | None = None,
        greatest: int | None = None,
    ) -> None:
        """Record that a batch has run with its rules, which event times arrived, and the rest of its `BatchRecord`."""
        so_far, begun = joined([*self._arrived(batch_id - 1), *arrived]), self._batches.record(batch_id)
        lists = {} if begun is None else begun.lists
        done = BatchRecord(
            rule_set.version, so_far, done=True, lists=lists, fills=dict(fills or {}), driver=driver, greatest=greatest
        )
        self._batches.keep(batch_id, done)


COLUMNS = pa.schema([(name, pa.string()) for name in ("rule_id", "rule", "author", "reason")])


def open_rule_table(path: Path) -> DeltaTable:
    """Open a table of rules."""
    remedy = "`buckets rules apply FILE --conf CONF` makes one"
    table = open_named(path, lambda why: f"rules {path}: is not a Delta table ({why}); {remedy}")
    columns = {field.name for field in table.schema().fields}
    missing = [name for name in ("rule_id", "rule") if name not in columns]
    if missing:
        message = f"rules {path}: the table has no column {missing[0]!r}; columns there: {', '.join(sorted(columns))}"
        raise BucketsError(message)
    return table


def read_rule_rows(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the rows of a table of rules by `rule_id`."""
    sql = "select * from rows order by rule_id"
    rows: list[dict[str, Any]] = query(table, sql, f"rules {table.table_uri}", "restore a version").to_pylist()
    return rows


RuleRows = tuple[str, dict[str, RuleChange]]  # The table's version, and by rule the change that its row requests


class RuleTable(WholeRules[RuleRows]):
    """A feed of the rules in a table, checked every second."""

    def __init__(self, path: Path, schema: EventSchema) -> None:
        super().__init__(path, watched_table(path, lambda: _load(path, self._schema)), schema)

    def _changes(self, in_force: Sequence[Rule], there: RuleRows) -> list[RuleChange]:
        (origin, rows), old = there, {rule.rule_id: rule for rule in in_force}
        gone = [
            RuleChange(change="delete", rule_id=rule_id, reason="its row is gone", time=epoch_ms(), origin=origin)
            for rule_id in old
            if rule_id not in rows
        ]
        return gone + [change for rule_id, change in rows.items() if _says_something(change, old.get(rule_id))]


def _load(path: Path, schema: EventSchema) -> RuleRows:
    table = open_rule_table(path)
    origin = f"{path}@{table.version()}"
    changes: dict[str, RuleChange] = {}
    refused = []
    for row in read_rule_rows(table):
        try:
            change = change_of_row(row, origin, schema)
            if row["rule_id"] in changes:
                message = "is in two rows"
                raise ValueError(message)
        except ValueError as error:
            refused.append(Refusal(origin, f"rule {row['rule_id']!r}: {error}", str(row["rule"])))
        else:
            changes[row["rule_id"]] = change
    if refused:
        raise RefusedRules(refused)
    return origin, changes


def _says_something(change: RuleChange, there: Rule | None) -> bool:
    """Return whether a row differs from the rule in force."""
    assert change.rule is not None
    if change.rule.state == "DELETE":
        return there is not None
    return needs_put(there, change.rule)


def change_of_row(row: dict[str, Any], origin: str, schema: EventSchema) -> RuleChange:
    """Return the change that a row requests, perhaps with state DELETE; raises ValueError if the row has no rule."""
    if not row["rule_id"]:
        message = "column `rule_id` must not be empty"
        raise ValueError(message)
    if not isinstance(row["rule"], str):
        message = "column `rule` must hold the rule as JSON"
        raise ValueError(message)
    change = parse_change(row["rule_id"], row["rule"], origin, epoch_ms())
    if change is None or change.rule is None:
        message = "column `rule` must hold a rule, not another change"
        raise ValueError(message)
    fault = None if change.rule.state == "DELETE" else check_against_schema(change.rule, schema)
    if fault is not None:
        message = f"{field_name(fault[0])}: {fault[1]}"
        raise ValueError(message)
    return change.model_copy(update={name: row.get(name) or "" for name in ("author", "reason")})
