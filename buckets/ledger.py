"""What the driver writes beside Spark's checkpoint: what it is for, the rule sets, and which judged which batch.

    CHECKPOINT/buckets/job.json               what the state was built from; another job must not start from it
    CHECKPOINT/buckets/rule_sets/000001.json  every version of the rules
    CHECKPOINT/buckets/batches/000000042.json the version that judges a batch, written before the batch runs

A batch that is run again after a crash finds its record, and so its rules. Files are written whole or not at all.
"""

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.duration import format_duration
from buckets.engine_settings import EngineSettings
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.head import CODEC_VERSION
from buckets.precision import Precision
from buckets.rule import Rule
from buckets.rule_set import Group, RuleSet, first_rule_set, next_rule_set

FORMAT = 1
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


@dataclass(frozen=True)
class Basis:
    """What state is built from, and may not change under it."""

    source: str
    schema: EventSchema
    engine: EngineSettings

    def to_json(self) -> dict[str, Any]:
        """The basis as plain data."""
        return {
            "format": FORMAT,
            "source": self.source,
            "event_schema": self.schema.model_dump(mode="json"),
            "shards": self.engine.shards,
            "allowed_lateness_ms": self.engine.allowed_lateness,
            "codec": CODEC_VERSION,
            "precision": self.engine.precision.descriptions(),
        }

    def conflict(self, written: dict[str, Any]) -> str | None:
        """In what the written basis differs, in words; None where state can go on."""
        now = self.to_json()
        if written["format"] != FORMAT:
            return f"has format {written['format']}, and this release reads format {FORMAT}"
        if written.get("codec", 1) > CODEC_VERSION:
            return f"was written by codec version {written['codec']}, and this release reads 1 to {CODEC_VERSION}"
        if written["shards"] != now["shards"]:
            return f"was made with engine.shards {written['shards']}, not {now['shards']}"
        if written["allowed_lateness_ms"] != now["allowed_lateness_ms"]:
            before, after = (format_duration(basis["allowed_lateness_ms"]) for basis in (written, now))
            return f"was made with engine.allowed_lateness {before}, not {after}"
        if written["source"] != now["source"]:
            return f"was made for source {written['source']}, not {now['source']}"
        return self._schema_conflict(EventSchema.model_validate(written["event_schema"]))

    def carried_over(self, written: dict[str, Any]) -> str | None:
        """What has changed that state can go on with, in words."""
        before = written.get("precision", {"all groups": Precision().describe()})
        now = self.engine.precision.descriptions()
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if not changed:
            return None
        said = "; ".join(
            f"{name}: {before.get(name, 'as all groups')} until now, {now.get(name, 'as all groups')} from now on"
            for name in changed
        )
        return f"precision has changed ({said}); what lies in buckets stays as coarse as it is, and bounds take it so"

    def _schema_conflict(self, written: EventSchema) -> str | None:
        now = self.schema
        if (written.event_id, written.event_time) != (now.event_id, now.event_time):
            return f"was made for event schema {written.name!r} with another id or time field"
        for name, kind in written.attributes.items():
            if now.attributes.get(name) != kind:
                return f"was made with attribute {name}: {kind}, not {now.attributes.get(name, 'missing')}"
        for name, measure in written.measures.items():
            if now.measures.get(name) != measure:
                return f"was made with measure {name} of scale {measure.scale}, which the event schema has no more"
        return None


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
        if self._is_foreign():
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

    def _is_foreign(self) -> bool:
        """Whether something is there that is not the trace of a start that died before its first file was whole."""
        if not self.checkpoint.exists():
            return False
        if not self.checkpoint.is_dir():
            return True
        entries = [path for path in self.checkpoint.rglob("*") if path != self._folder]
        return any(path != partial_of(self._job) for path in entries)

    def _record(self, batch_id: int) -> Path:
        return self._folder / "batches" / f"{batch_id:09d}.json"

    def _rule_set_file(self, version: int) -> Path:
        return self._folder / "rule_sets" / f"{version:06d}.json"

    def rule_set(self, version: int) -> RuleSet:
        """A version of the rules."""
        return RuleSet.from_json(self._rule_set_file(version).read_text(encoding="utf-8"))

    def latest_rule_set(self) -> RuleSet | None:
        """The newest version of the rules."""
        files = sorted((self._folder / "rule_sets").glob("*.json"))
        return self.rule_set(int(files[-1].stem)) if files else None

    def groups(self) -> dict[str, Group]:
        """All groups that there ever were, by their identity, each as it was last."""
        files = sorted((self._folder / "rule_sets").glob("*.json"))
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

    def keep_rule_set(self, rule_set: RuleSet) -> None:
        """Write a new version of the rules."""
        write_whole(self._rule_set_file(rule_set.version), rule_set.to_json())

    def pinned(self, batch_id: int) -> dict[str, Any] | None:
        """The record of a batch: its `ruleset_version`, and the stream's `clock_ms` behind it once it has run."""
        path = self._record(batch_id)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def pin(self, batch_id: int, version: int, clock_ms: int | None, done: bool) -> None:
        """Write the record of a batch, and forget those that Spark cannot go back to."""
        record = {"ruleset_version": version, "clock_ms": clock_ms, "done": done}
        write_whole(self._record(batch_id), json.dumps(record))
        self._record(batch_id - KEPT_BATCHES).unlink(missing_ok=True)


class RuleBook:
    """Numbers the versions of the rules, and says which version judges which batch."""

    def __init__(self, ledger: Ledger, rules: Sequence[Rule], lateness_ms: int) -> None:
        """Offer `rules` to the batches to come.

        Args:
            ledger: where versions and batches are recorded.
            rules: the rules that are in force from now on.
            lateness_ms: the allowed lateness.
        """
        self._ledger = ledger
        self._rules = tuple(rules)
        self._lateness_ms = lateness_ms
        self._current: RuleSet | None = None

    def for_batch(self, batch_id: int) -> RuleSet:
        """The rules of a batch: those it had when it ran before, else those in force now; recorded before it runs."""
        pinned = self._ledger.pinned(batch_id)
        if pinned is not None:
            return self._ledger.rule_set(pinned["ruleset_version"])
        if self._current is None:
            self._current = self._in_force(batch_id)
        self._ledger.pin(batch_id, self._current.version, None, done=False)
        return self._current

    def _in_force(self, batch_id: int) -> RuleSet:
        before = self._ledger.latest_rule_set()
        if before is not None and before.rules == self._rules:
            return before
        if before is None:
            rule_set = first_rule_set(self._rules)
        else:
            rule_set = next_rule_set(before, self._rules, self._clock_ms(batch_id - 1), self._lateness_ms)
        self._ledger.keep_rule_set(rule_set)
        return rule_set

    def _clock_ms(self, batch_id: int) -> int | None:
        record = self._ledger.pinned(batch_id)
        return record["clock_ms"] if record else None

    def done(self, batch_id: int, rule_set: RuleSet, latest_ms: int | None) -> None:
        """Record that a batch has run, and how far event time has come with it."""
        moments = [moment for moment in (self._clock_ms(batch_id - 1), latest_ms) if moment is not None]
        self._ledger.pin(batch_id, rule_set.version, max(moments, default=None), done=True)
