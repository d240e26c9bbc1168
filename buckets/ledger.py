"""What the driver writes beside Spark's checkpoint: what it is for, the rule sets, and what judged which batch.

    CHECKPOINT/buckets/job.json               what the state was built from; another job must not start from it
    CHECKPOINT/buckets/rule_sets/000001.json  every version of the rules, and the changes that led to it
    CHECKPOINT/buckets/rules_position.json    how far a topic of rules has been read, where that made no new version
    CHECKPOINT/buckets/terms/000000017.json   the settings that judge from this batch on, until the next such file
    CHECKPOINT/buckets/batches/000000042.json the version that judges a batch, written before the batch runs

A batch that is run again after a crash finds its record, and so its rules and its settings. Files are written whole or
not at all.
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.arrived import Stretches
from buckets.basis import Basis
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.revision import Change
from buckets.rule import Rule
from buckets.rule_set import Group, RuleSet
from buckets.terms import Terms

KEPT_BATCHES = 200
"""Batch records that are kept; Spark itself can go back 100 batches."""


def partial_of(path: Path) -> Path:
    """Where a file is while it is not whole."""
    return path.with_name(f".{path.name}.partial")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def holds_more_than(folder: Path, first: Path) -> bool:
    """Whether there is more in a folder than the trace of a start that died before its first file was whole."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        return True
    return any(path not in (partial_of(first), first.parent) for path in folder.rglob("*"))


@dataclass(frozen=True)
class Version:
    """How a version of the rules came to be; None where an earlier release did not write it down.

    Attributes:
        version: the rule set's number.
        first_batch: the first batch that it judges.
        position: how far the topic of rules had been read.
        place: where the rules came from; a position is one of this place.
        made_ms: when it was made, in ms since the epoch.
        changes: what changed with it.
    """

    version: int
    first_batch: int | None
    position: int | None
    place: str | None
    made_ms: int | None
    changes: tuple[Change, ...]


def epoch_ms() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def _written(rule: Rule | None) -> dict[str, Any] | None:
    return None if rule is None else rule.model_dump(by_alias=True, mode="json")


def _read(written: dict[str, Any] | None) -> Rule | None:
    return None if written is None else Rule.model_validate(written)


class Ledger:
    """The folder `buckets` in a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        """Look at a checkpoint; nothing is written yet."""
        self.checkpoint = checkpoint
        self._folder = checkpoint / "buckets"
        self._job = self._folder / "job.json"

    def identity(self, basis: Basis) -> str | None:
        """The identity of the checkpoint, the same at every start; None where there is no checkpoint yet.

        Raises:
            BucketsError: the checkpoint was made by something else, or from another basis.
        """
        if self._job.exists():
            written = json.loads(self._job.read_text(encoding="utf-8"))
            conflict = basis.conflict(written)
            if conflict:
                remedy = "go back to that, or name a new checkpoint and a new output folder"
                message = f"checkpoint {self.checkpoint} {conflict}; {remedy}"
                raise BucketsError(message)
            return str(written["id"])
        if holds_more_than(self.checkpoint, self._job):
            message = f"checkpoint {self.checkpoint} holds something that this program did not write; name a new folder"
            raise BucketsError(message)
        return None

    def carried_over(self, basis: Basis) -> str | None:
        """What has changed since the last start that state can go on with, in words."""
        if not self._job.exists():
            return None
        return basis.carried_over(json.loads(self._job.read_text(encoding="utf-8")))

    def open(self, basis: Basis) -> str:
        """Begin a new checkpoint, or go on with one of the same basis.

        Returns:
            The checkpoint's identity.

        Raises:
            BucketsError: as `identity`.
        """
        identity = self.identity(basis) or uuid.uuid4().hex
        text = json.dumps({**basis.to_json(), "id": identity}, indent=1)
        if not self._job.exists() or self._job.read_text(encoding="utf-8") != text:
            write_whole(self._job, text)
        return identity

    def has_run(self) -> bool:
        """Whether some batch has begun."""
        return any((self._folder / "batches").glob("*.json"))

    def terms_for(self, batch_id: int, now: Terms) -> Terms:
        """What a batch is judged by beside its rules: what it was begun with, also when it is run again.

        This is asked before the batch is pinned: a batch that has no record yet begins with the terms of now, which
        are written where they are other ones than before.

        Args:
            batch_id: the batch.
            now: the terms of this start of the job.

        Raises:
            BucketsError: the batch was begun with something that this start cannot go on with.
        """
        before = self._terms_text(batch_id)
        if not self._record(batch_id).exists():
            text = now.model_dump_json()
            if text != before:
                write_whole(self._terms_file(batch_id), text)
            return now
        if before is None:  # An earlier release wrote none.
            return now
        begun = Terms.model_validate_json(before)
        conflict = now.conflict(begun)
        if conflict:
            message = (
                f"batch {batch_id} of checkpoint {self.checkpoint} {conflict}, and may be half written; go back to "
                "that until the batch is done, and change it then"
            )
            raise BucketsError(message)
        return begun

    def _terms_file(self, batch_id: int) -> Path:
        return self._folder / "terms" / f"{batch_id:09d}.json"

    def _terms_text(self, batch_id: int) -> str | None:
        """The terms in force at a batch, as they are written; None where none are."""
        files = (self._folder / "terms").glob("*.json")
        first = max((int(file.stem) for file in files if int(file.stem) <= batch_id), default=None)
        return None if first is None else self._terms_file(first).read_text(encoding="utf-8")

    def _record(self, batch_id: int) -> Path:
        return self._folder / "batches" / f"{batch_id:09d}.json"

    def _rule_set_file(self, version: int) -> Path:
        return self._folder / "rule_sets" / f"{version:06d}.json"

    def _rule_set_files(self) -> list[Path]:
        """All versions, oldest first."""
        return sorted((self._folder / "rule_sets").glob("*.json"), key=lambda file: int(file.stem))

    def rule_set(self, version: int) -> RuleSet:
        """A version of the rules."""
        return RuleSet.from_json(self._rule_set_file(version).read_text(encoding="utf-8"))

    def latest_rule_set(self) -> RuleSet | None:
        """The newest version of the rules."""
        files = self._rule_set_files()
        return self.rule_set(int(files[-1].stem)) if files else None

    def gone_rules(self) -> dict[str, int]:
        """The last version of each rule that was ever deleted, as the newest version of the rules has it."""
        files = self._rule_set_files()
        return dict(json.loads(files[-1].read_text(encoding="utf-8")).get("gone", {})) if files else {}

    def groups(self) -> dict[str, Group]:
        """All groups that there ever were, by their identity, each as it was last."""
        files = self._rule_set_files()
        return {group.group_id: group for file in files for group in self.rule_set(int(file.stem)).groups}

    def event_schema(self) -> EventSchema:
        """The event schema of the last start.

        Raises:
            BucketsError: this is no checkpoint of a job that has started.
        """
        if not self._job.exists():
            message = (
                f"{self.checkpoint} is no checkpoint: there is no {self._job.relative_to(self.checkpoint)} in it; "
                "give the folder that the configuration names as `checkpoint`"
            )
            raise BucketsError(message)
        return EventSchema.model_validate(json.loads(self._job.read_text(encoding="utf-8"))["event_schema"])

    def keep_rule_set(
        self,
        rule_set: RuleSet,
        made: Iterable[Change] = (),
        first_batch: int | None = None,
        position: int | None = None,
        place: str | None = None,
        gone: Mapping[str, int] | None = None,
    ) -> None:
        """Write a new version of the rules.

        Args:
            rule_set: the version.
            made: the changes that led to it.
            first_batch: the first batch that it judges.
            position: how far the topic of rules has been read with it.
            place: where the rules come from.
            gone: the last version of each rule that was ever deleted.
        """
        changes = [
            vars(change) | {side: _written(getattr(change, side)) for side in ("before", "after")} for change in made
        ]
        record: dict[str, Any] = {"changes": changes, "first_batch": first_batch, "position": position, "place": place}
        record |= {"gone": dict(gone or {}), "made_ms": epoch_ms()}
        write_whole(self._rule_set_file(rule_set.version), json.dumps(json.loads(rule_set.to_json()) | record))

    def keep_rules_position(self, position: int, place: str, version: int) -> None:
        """Write how far a topic of rules has been read, where that made no new version.

        Args:
            position: how far.
            place: the topic.
            version: the version of the rules that is in force.
        """
        record = {"position": position, "place": place, "version": version}
        write_whole(self._folder / "rules_position.json", json.dumps(record))

    def rules_position(self, place: str) -> int | None:
        """How far a topic of rules has been read; None where it has not been, or another place was followed since."""
        file, versions = self._folder / "rules_position.json", self._rule_set_files()
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        if versions and (kept is None or kept["version"] < int(versions[-1].stem)):
            latest = self._version(versions[-1])
            kept = {"position": latest.position, "place": latest.place}
        return kept["position"] if kept is not None and kept["place"] == place else None

    def history(self, after: int = 0) -> list[Version]:
        """The versions of the rules, oldest first.

        Args:
            after: only those later than this one.
        """
        return [self._version(file) for file in self._rule_set_files() if int(file.stem) > after]

    def _version(self, file: Path) -> Version:
        data = json.loads(file.read_text(encoding="utf-8"))
        changes = tuple(
            Change(**(change | {side: _read(change[side]) for side in ("before", "after")}))
            for change in data.get("changes", ())
        )
        return Version(
            version=data["version"],
            first_batch=data.get("first_batch"),
            position=data.get("position"),
            place=data.get("place"),
            made_ms=data.get("made_ms"),
            changes=changes,
        )

    def pinned(self, batch_id: int) -> dict[str, Any] | None:
        """The record of a batch: its `ruleset_version`, and what event times have `arrived` once it has run."""
        path = self._record(batch_id)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def pin(self, batch_id: int, version: int, arrived: Stretches, done: bool) -> None:
        """Write the record of a batch, and forget those that Spark cannot go back to."""
        record = {"ruleset_version": version, "arrived": arrived, "done": done}
        write_whole(self._record(batch_id), json.dumps(record))
        self._record(batch_id - KEPT_BATCHES).unlink(missing_ok=True)
