"""Scoring as a pure function: plan, timelines and new events of a group in; verdicts, results and timelines out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from buckets.codec import CODEC_VERSION
from buckets.errors import BucketsError
from buckets.kernel import UNREADABLE, KeyedEvents, Policy, score_keys
from buckets.plan import GroupPlan
from buckets.rows import Rows
from buckets.verdict import Verdicts


@dataclass(frozen=True)
class EventIds:
    """Event ids one behind the other: UTF-8 bytes, uint8, and int64 `(events + 1,)` places where each begins."""

    data: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[str]) -> "EventIds":
        """Lay out ids given as text."""
        encoded = [text.encode() for text in ids]
        start = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=start[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), start)


@dataclass(frozen=True)
class KeyBatch:
    """The events of one group in one micro-batch, key by key, each key's in arrival order.

    Attributes:
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        times_ms: int64 `(events,)`.
        values: int64 `(columns, events)`, scaled measures in the order of the group's layout.
        ids: the events' ids.
    """

    key_start: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    ids: EventIds


@dataclass(frozen=True)
class Scored:
    """What came out for a `KeyBatch`.

    Attributes:
        verdicts: what became of each event.
        rows: results of events and rules, events key by key.
        timelines: the keys' new timelines, encoded.
        pool: uint8, where `verdicts.other_start` points into.
    """

    verdicts: Verdicts
    rows: Rows
    timelines: list[bytes]
    pool: npt.NDArray[np.uint8]

    def other_id(self, event: int) -> str | None:
        """The id that stands at the event's time, if one did when it arrived."""
        start, length = int(self.verdicts.other_start[event]), int(self.verdicts.other_length[event])
        return None if start < 0 else self.pool[start : start + length].tobytes().decode()


def _no_verdicts(events: int) -> Verdicts:
    return Verdicts(
        outcome=np.zeros(events, np.uint8),
        applied=np.zeros(events, np.bool_),
        clock_ms=np.zeros(events, np.int64),
        other_start=np.full(events, -1, np.int64),
        other_length=np.zeros(events, np.int64),
        rule=np.full(events, -1, np.int64),
    )


def score(plan: GroupPlan, timelines: Sequence[bytes], batch: KeyBatch, emit_all: bool) -> Scored:
    """Take a batch of events into the timelines of a group, and judge each event.

    Args:
        plan: the group's rules and policies.
        timelines: each key's encoded timeline; empty for a new key.
        batch: the events of these keys.
        emit_all: whether results are wanted for every rule, or for the fired ones only.

    Returns:
        Verdicts, results and new timelines. Nothing given is changed.

    Raises:
        BucketsError: a timeline was written by an unknown version of the codec.
    """
    state = b"".join(timelines)
    state_start = np.zeros(len(timelines) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, timelines), np.int64, len(timelines)), out=state_start[1:])
    pool = np.concatenate([np.frombuffer(state, np.uint8), batch.ids.data])
    events = KeyedEvents(
        key_start=batch.key_start,
        times_ms=batch.times_ms,
        values=batch.values,
        id_start=batch.ids.start[:-1] + len(state),
        id_length=np.diff(batch.ids.start),
    )
    verdicts = _no_verdicts(len(batch.times_ms))
    policy = Policy(np.int64(plan.horizon_ms), np.int64(plan.late), np.int64(plan.collision))  # type: ignore[arg-type]
    rows, used, encoded, encoded_start = score_keys(
        events,
        pool,
        state_start,
        plan.rule_arrays,
        plan.window_arrays.reach_ms,
        plan.needs_extremes,
        policy,
        emit_all,
        verdicts,
    )
    if used == UNREADABLE:
        message = (
            f"state of group {plan.group.name!r} was not written by codec version {CODEC_VERSION}, the only one this "
            "release reads; run the release that wrote the checkpoint, or start with a new checkpoint"
        )
        raise BucketsError(message)
    whole = encoded.tobytes()
    ends = encoded_start.tolist()
    return Scored(
        verdicts=verdicts,
        rows=Rows(*(column[:used] for column in rows)),
        timelines=[whole[start:end] for start, end in pairwise(ends)],
        pool=pool,
    )
