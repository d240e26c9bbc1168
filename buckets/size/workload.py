"""What is asked: the groupings of a job with their keys, how many events come, and what there is to score them with."""

from dataclasses import dataclass
from math import expm1

from buckets.duration import SECOND_MS

GROUP_BYTES = 8
"""The identity of a group, with which each of its keys begins in the state."""


@dataclass(frozen=True)
class Width:
    """How far back events lie in buckets of one width.

    Attributes:
        from_ms: age at which they begin.
        to_ms: age at which they end.
        width_ms: of a bucket.
    """

    from_ms: int
    to_ms: int
    width_ms: int


@dataclass(frozen=True)
class Grouping:
    """A group of rules. Its keys are taken to be alike: each is as likely as any other in every event.

    Attributes:
        name: in words.
        fields: how many fields it groups by.
        keys: how many different keys there are.
        tracks: columns of its timelines beside the count.
        features: what is computed at each event: limits of rules in the short form, and parts of features.
        horizon_ms: how far back its timelines reach.
        tail_ms: how far back events are kept raw; at most the horizon.
        widths: of the buckets behind that.
    """

    name: str
    fields: int
    keys: float
    tracks: int
    features: int
    horizon_ms: int
    tail_ms: int
    widths: tuple[Width, ...] = ()

    def kept(self, rate: float) -> "Kept":
        """Return what its timelines hold once the stream has come for a horizon, at so many events a second."""
        of_key = rate / self.keys / SECOND_MS
        living = -expm1(-of_key * self.horizon_ms)
        keys = self.keys * living
        if not keys:
            return Kept(0, 0, 0)
        raw = self.keys * of_key * self.tail_ms
        buckets = self.keys * sum(
            (each.to_ms - each.from_ms) / each.width_ms * -expm1(-of_key * each.width_ms) for each in self.widths
        )
        return Kept(keys, raw / keys, buckets / keys)


@dataclass(frozen=True)
class Kept:
    """What the timelines of a grouping hold.

    Attributes:
        keys: that have an event within the horizon.
        raw: single events of such a key.
        buckets: of such a key.
    """

    keys: float
    raw: float
    buckets: float


@dataclass(frozen=True)
class Cluster:
    """What there is to score with.

    Attributes:
        cores: of all machines that score.
        machines: how many processes of Java score, each with workers of Python.
        memory_bytes: of all of them together; None where it is not known.
    """

    cores: int
    machines: int = 1
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Workload:
    """A job and what comes to it.

    Attributes:
        groupings: its groups.
        event_fields: how many fields of events rules name.
        conditions: how many rules have a condition over features, which is evaluated at each event.
        rate: events a second.
        is_text: whether events come as text or messages, and not in columns.
        text_bytes: how long an event's id and the value of a grouping field are.
        shards: of the engine.
        tasks: that score at once.
        cluster: what there is to score with.
        log_bytes: the bound of the log, `state.log`.
        cache_bytes: the bound of what is remembered beside it, `state.cache`.
        interval_s: how often a batch begins; 0: when the one before has ended.
        most_rows: of a batch; None where nothing bounds them.
    """

    groupings: tuple[Grouping, ...]
    event_fields: int
    conditions: int
    rate: float
    is_text: bool
    text_bytes: int
    shards: int
    tasks: int
    cluster: Cluster
    log_bytes: int
    cache_bytes: int
    interval_s: float = 0.0
    most_rows: int | None = None
