"""Every version of the rules, with the changes that led to it, and the position in the topic of rules.

CHECKPOINT/buckets/rule_sets/000001.json  a version of the rules
CHECKPOINT/buckets/rules_position.json    the position in the topic, if reading on made no new version
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.record_files import NumberedRecords, RecordFiles, reader_of
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.clock import epoch_ms
from buckets.rules.group import Group
from buckets.rules.revision import Change
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class Version:
    """How a version of the rules came to be."""

    version: int  # the rule set's number
    first_batch: int | None  # the first batch that it evaluates
    position: TopicPosition | None  # how far the topic of rules had been read
    origin: str | None  # where the rules came from; a position counts for this origin only
    made_ms: int | None  # when it was made, in ms since the epoch
    changes: tuple[Change, ...]  # what changed with it


@dataclass(frozen=True)
class _Read:
    """A position in a topic of rules."""

    position: TopicPosition | None
    origin: str
    version: int  # the version of the rules in force


_VERSION = TypeAdapter(Version)
_CHANGES = TypeAdapter(list[Change])


class RuleVersions:
    """The versions of the rules that a checkpoint keeps; each is written once and never deleted."""

    def __init__(self, checkpoint: Path, batches: BatchRecords | None = None) -> None:
        """Write nothing yet; `batches` are the records of the checkpoint's latest batches."""
        self._records, self._batches = RecordFiles(checkpoint), batches or BatchRecords(checkpoint)
        self._rule_sets = NumberedRecords(self._records, self._records.folder / "rule_sets", digits=6, is_own=True)
        self._position_file = self._records.folder / "rules_position.json"

    def rule_set(self, version: int) -> RuleSet:
        """Return a version of the rules."""
        return self._rule_sets.read(version, RuleSet.from_record)

    def latest_rule_set(self) -> RuleSet | None:
        """Return the newest version of the rules."""
        versions = self._versions()
        return self.rule_set(versions[-1]) if versions else None

    def gone_rules(self) -> dict[str, int]:
        """Return the last version of each rule that was ever deleted, as of the newest version of the rules."""
        versions = self._versions()
        return self._rule_sets.read(versions[-1], lambda record: dict(record.get("gone", {}))) if versions else {}

    def groups(self) -> dict[str, Group]:
        """Return the latest form of every group that ever existed, by identity."""
        return {group.group_id: group for version in self._versions() for group in self.rule_set(version).groups}

    def timelines(self) -> dict[str, Group]:
        """Return the latest form of every group that ever existed, by timeline identity, even if still being filled."""
        rule_sets = map(self.rule_set, self._versions())
        groups = (group for rules in rule_sets for group in (*rules.groups, *rules.filling.values()))
        return {group.state_id: group for group in groups}

    def history(self, after: int = 0) -> list[Version]:
        """Return the versions of the rules later than `after`, with their origins, oldest first."""
        return [self._version(version) for version in self._versions() if version > after]

    def latest_change(self, rule_id: str, until: int) -> tuple[Version, Change] | None:
        """Return the last change of a rule up to a version of the rules; None if none is recorded."""
        for number in reversed([number for number in self._versions() if number <= until]):
            version = self._version(number)
            for change in version.changes:
                if change.rule_id == rule_id:
                    return version, change
        return None

    def keep(
        self,
        rule_set: RuleSet,
        made: Iterable[Change] = (),
        first_batch: int | None = None,
        position: TopicPosition | None = None,
        origin: str | None = None,
        gone: Mapping[str, int] | None = None,
    ) -> None:
        """Write a new version of the rules, described as in `Version`; `gone` is as `gone_rules` returns it."""
        record: dict[str, Any] = {
            "changes": _CHANGES.dump_python(list(made), by_alias=True, mode="json"),
            "first_batch": first_batch,
            "position": position,
            "origin": origin,
            "gone": dict(gone or {}),
            "made_ms": epoch_ms(),
        }
        self._rule_sets.write(rule_set.version, json.loads(rule_set.to_json()) | record)

    def keep_position(self, position: TopicPosition, origin: str, version: int) -> None:
        """Write the position in a topic of rules if reading on made no new version; `version` is in force."""
        self._records.write(self._position_file, _Read(position, origin, version))

    def position(self, origin: str) -> TopicPosition | None:
        """Return the position in a topic of rules; None if it was never read, or another was followed since."""
        kept, versions = self._records.read_if_there(self._position_file, reader_of(_Read)), self._versions()
        if versions and (kept is None or kept.version < versions[-1]):
            latest = self._version(versions[-1])
            return latest.position if latest.origin == origin else None
        return kept.position if kept is not None and kept.origin == origin else None

    def _version(self, version: int) -> Version:
        return self._rule_sets.read(version, _VERSION.validate_python)

    def _versions(self) -> list[int]:
        versions = self._rule_sets.numbers()
        scored_by = self._batches.latest().ruleset_version
        if scored_by > max(versions, default=0):
            raise self._rule_sets.missing(scored_by)
        return versions
