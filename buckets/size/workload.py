"""The workload of a job: its groupings with their keys, its rate of events, and the cluster that scores them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import expm1

from buckets.config.engine import Precision
from buckets.config.job import Job
from buckets.duration import SECOND_MS
from buckets.errors import ConfigurationError
from buckets.printable import counted
from buckets.rules.change import changes_between
from buckets.rules.feature import holds_texts
from buckets.rules.group import Group, canonical_group_id
from buckets.rules.revision import revise
from buckets.rules.role import has_roles
from buckets.rules.rule_set import RuleSet

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
MOST = 10**12
_FORM = re.compile(r"(\d{1,16}(?:\.\d{1,9})?) ?([a-z]?)", re.ASCII | re.IGNORECASE)


def parse_number(text: str) -> float:
    """Parse a count such as `50M`, above 0 and up to 10**12; ValueError for others."""
    match = _FORM.fullmatch(text.strip())
    unit = None if match is None else UNITS.get(match[2].lower())
    if match is None or unit is None:
        message = f"{text!r} is not a count; write digits and perhaps k, M or G, as in 20000, 20k or 1.5M"
        raise ValueError(message)
    number = Decimal(match[1]) * unit
    if not 0 < number <= MOST:
        message = f"{text!r} is out of bounds; write more than 0 and at most {MOST // UNITS['g']:,}G"
        raise ValueError(message)
    return float(number)


Keys = Mapping[frozenset[str], float]
"""The number of different keys of groupings, by fields; without fields: of all others."""


def keys_of(counts: Keys, fields: Iterable[str]) -> float | None:
    """Return the number of keys of a grouping; None if unknown."""
    named = frozenset(fields)
    return counts.get(named, counts.get(frozenset())) if named else 1.0


def parse_keys(texts: Iterable[str]) -> Keys:
    """Parse the values of `--keys`: a number for all groupings, `FIELD=NUMBER` or `FIELD,FIELD=NUMBER` for one."""
    counts: dict[frozenset[str], float] = {}
    for text in texts:
        names, mark, number = text.rpartition("=")
        fields = [name.strip() for name in names.split(",")] if mark else []
        if not all(fields):
            message = f"{text!r} names no fields; write FIELD=NUMBER, or FIELD,FIELD=NUMBER"
            raise ValueError(message)
        count = parse_number(number)
        if count < 1:
            message = f"{text!r} is less than one key; write 1 or more"
            raise ValueError(message)
        if counts.setdefault(frozenset(fields), count) != count:
            message = f"{text!r} is said in another way before; say it once"
            raise ValueError(message)
    return counts


GROUP_BYTES = 8  # The group identity at the beginning of each of its keys in the state


@dataclass(frozen=True)
class Width:
    """The range of ages of events in buckets of one width."""

    from_ms: int  # age at which they begin
    to_ms: int  # age at which they end
    width_ms: int  # of a bucket


@dataclass(frozen=True)
class Grouping:
    """A group of rules. All its keys are assumed to be equally likely in every event."""

    name: str  # a description
    fields: int  # how many fields it groups by
    keys: float  # how many different keys there are
    tracks: int  # columns of its timelines beside the count
    features: int  # computations per event: limits of rules in the short form, and parts of features
    horizon_ms: int  # how far back its timelines reach
    tail_ms: int  # how far back events are kept raw; at most the horizon
    widths: tuple[Width, ...] = ()  # of the buckets behind that

    def kept(self, rate: float) -> "Kept":
        """Return the contents of its timelines after a horizon of events at this rate, per second."""
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
    """The contents of a grouping's timelines."""

    keys: float  # that have an event within the horizon
    raw: float  # single events of such a key
    buckets: float  # of such a key


@dataclass(frozen=True)
class Cluster:
    """The resources for scoring."""

    cores: int  # of all machines that score
    machines: int = 1  # how many processes of Java score, each with workers of Python
    memory_bytes: int | None = None  # of all of them together; None where it is not known


@dataclass(frozen=True)
class Workload:
    """A job and its stream of events."""

    groupings: tuple[Grouping, ...]  # its groups
    event_fields: int  # how many fields of events rules name
    conditions: int  # how many rules have a condition over features, which is evaluated at each event
    rate: float  # events a second
    is_text: bool  # whether events come as text or messages, and not in columns
    text_bytes: int  # how long an event's id and the value of a grouping field are
    shards: int  # of the engine
    tasks: int  # that score at once
    cluster: Cluster  # what there is to score with
    log_bytes: int  # the bound of the log, `state.log`
    cache_bytes: int  # the bound of what is remembered beside it, `state.cache`
    interval_s: float = 0.0  # how often a batch begins; 0: when the one before has ended
    most_rows: int | None = None  # of a batch; None where nothing bounds them


_LOCAL = re.compile(r"local(?:\[(0*[1-9]\d*|\*)(?:, *\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *(0*[1-9]\d*) *, *(0*[1-9]\d*) *, *\d+ *\]")
_SPARK_SIZE = re.compile(r"(\d{1,12})([bkmgt]?)b?", re.IGNORECASE)
_SHIFTS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_LEAST_BESIDES_BYTES = 384 << 20
"""The least that Spark requests by default besides an executor's heap; a tenth of the heap if that is more."""
IN_COLUMNS = ("parquet", "delta")  # Kinds of sources whose events come in columns


@dataclass(frozen=True)
class SizeQuestion:
    """A person's inputs besides a job's configuration."""

    rate: float  # events a second
    keys: Keys  # of each grouping
    text_bytes: int  # how long ids of events and values of grouping fields are
    cores: int | None  # to score with; None: as the configuration says
    machine: Cluster  # where the command runs, which is taken for the job's where the master is local


def rule_set_of(job: Job) -> RuleSet:
    """Return the rule set of a configuration; at least one rule has to keep a window."""
    settings = job.settings
    if settings.rules.path is None:
        message = (
            f"rules: those of {settings.rules.topic or settings.rules.table} are not in the configuration; "
            "name a file of them with --rules (`buckets rules export` writes one)"
        )
        raise ConfigurationError(message)
    rule_set = revise(
        RuleSet(0, (), (), {}), changes_between((), job.rules), job.event_schema, (), settings.engine.allowed_lateness
    ).rule_set
    if not _groups(rule_set):
        message = (
            f"rules {settings.rules.path}: no rule is in force over events, so no window is kept; "
            "have at least one rule that is neither DRAFT nor DELETE"
        )
        raise ConfigurationError(message)
    return rule_set


def _groups(rule_set: RuleSet) -> tuple[Group, ...]:
    return tuple(group for group in rule_set.groups if group.on == "events")


def workload_of(job: Job, asked: SizeQuestion) -> Workload:
    """Return the workload of a job."""
    settings, rule_set = job.settings, rule_set_of(job)
    groups = _groups(rule_set)
    _check_named(groups, asked.keys)
    cluster = cluster_of(settings.spark, asked)
    shards = settings.engine.shards
    return Workload(
        groupings=tuple(_grouping(group, job, asked.keys) for group in groups),
        event_fields=len(rule_set.named_fields),
        conditions=sum(len(group.condition_rules) for group in groups),
        rate=asked.rate,
        is_text=settings.source.kind not in IN_COLUMNS,
        text_bytes=asked.text_bytes,
        shards=shards,
        tasks=settings.partitions or min(shards, cluster.cores),
        cluster=cluster,
        log_bytes=settings.state.log,
        cache_bytes=settings.state.cache,
        interval_s=(settings.trigger.interval or 0) / SECOND_MS,
        most_rows=settings.source.max_offsets_per_trigger if settings.source.all_topics else None,
    )


def notes_of(job: Job) -> list[str]:
    """Return remarks on parts of a job that the numbers do not cover."""
    groups = _groups(rule_set_of(job))
    spanning = {rule.rule_id for group in groups for rule in group.spanning_rules}
    on_alerts = [rule for rule in job.rules if (rule.on == "alerts" or rule.asks_alerts) and rule.is_in_force]
    parts = [part for group in groups for part in group.parts]
    listed = sum(part.is_listed or bool(part.steps) for part in parts)
    of_periods = sum(part.over is not None for part in parts)
    texts = {track for part in parts for track in part.tracks if holds_texts(track, job.event_schema)}
    of_roles = sum(has_roles(group.fields) for group in groups)
    filtered = sum(bool(group.where) for group in groups)
    notes = []
    if spanning:
        notes.append(
            f"what goes through the driver for {counted(len(spanning), 'rule')} with features of several groupings"
        )
    if on_alerts:
        notes.append(f"{counted(len(on_alerts), 'rule')} over alerts, or with features over alerts")
    if listed:
        what = "filters with `this`, sums that decay, ranks, entropy, sequences and absences"
        notes.append(f"what {counted(listed, 'value')} cost that look at each event of their window ({what})")
    if of_periods:
        notes.append(f"what {counted(of_periods, 'value')} of whole days or other periods cost beside one of a window")
    if texts:
        notes.append(f"the letters of {counted(len(texts), 'column')} of texts that timelines keep")
    if of_roles:
        notes.append(f"the second way of an event into {counted(of_roles, 'grouping')} of another role")
    if filtered:
        notes.append(f"the filters of {counted(filtered, 'grouping')}, which every event is taken to pass")
    if job.settings.output.evaluations:
        notes.append("a row for each evaluation (output.evaluations)")
    return notes


def cluster_of(spark: Mapping[str, str | int | bool], asked: SizeQuestion) -> Cluster:
    """Return the resources of a job from its Spark settings."""
    master = str(spark.get("spark.master", "local[*]"))
    if (local := _LOCAL.fullmatch(master)) is not None:
        cores = int(local[1]) if local[1] and local[1].isdigit() else asked.machine.cores if local[1] else 1
        cores, here = asked.cores or cores, asked.machine
        return Cluster(cores, 1, here.memory_bytes if cores <= here.cores else None)
    if (workers := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        machines, cores = int(workers[1]), int(workers[1]) * int(workers[2])
        return Cluster(asked.cores or cores, machines)
    each = _whole(spark, "spark.executor.cores")
    instances, most = _whole(spark, "spark.executor.instances"), _whole(spark, "spark.cores.max")
    cores = asked.cores or most or (each or 1) * (instances or 0)
    if not cores:
        message = (
            f"spark.master: {master} does not say how many cores there are; give --cores, or write "
            "spark.executor.instances and spark.executor.cores into the configuration"
        )
        raise ConfigurationError(message)
    machines = instances or max(1, cores // (each or cores))
    return Cluster(cores, machines, _executors_bytes(spark, machines))


def _executors_bytes(spark: Mapping[str, str | int | bool], machines: int) -> int | None:
    """Return the memory of all executors; None if the settings do not give it."""
    heap = _SPARK_SIZE.fullmatch(str(spark.get("spark.executor.memory", "")))
    if heap is None:
        return None
    heap_bytes = int(heap[1]) << _SHIFTS[heap[2].lower() or "b"]
    besides = _SPARK_SIZE.fullmatch(str(spark.get("spark.executor.memoryOverhead", "")))
    if besides is None:
        return machines * (heap_bytes + max(heap_bytes // 10, _LEAST_BESIDES_BYTES))
    return machines * (heap_bytes + (int(besides[1]) << _SHIFTS[besides[2].lower() or "m"]))


def _whole(spark: Mapping[str, str | int | bool], name: str) -> int | None:
    value = str(spark.get(name, ""))
    return int(value) if value.isdigit() and int(value) else None


def _check_named(groups: Sequence[Group], keys: Keys) -> None:
    known = {frozenset(group.counted_fields): ",".join(group.counted_fields) for group in groups if group.fields}
    names = "; ".join(sorted(known.values())) or "none but that of all events"
    for fields in keys:
        if fields and fields not in known:
            message = f"--keys: no rule groups by {','.join(sorted(fields))}; groupings: {names}"
            raise ConfigurationError(message)
    for fields, name in known.items():
        if keys_of(keys, fields) is None:
            message = f"--keys: it is not said how many keys {name} has; add --keys {name}=NUMBER, or --keys NUMBER"
            raise ConfigurationError(message)


def _grouping(group: Group, job: Job, keys: Keys) -> Grouping:
    engine, schema = job.settings.engine, job.event_schema
    horizon_ms = group.longest_window_ms + engine.allowed_lateness
    precision = engine.precision.of_group(canonical_group_id(group.fields, group.where, schema), schema)
    tail_ms, widths = _layout(precision, horizon_ms)
    return Grouping(
        name=group.name,
        fields=len(group.fields),
        keys=keys_of(keys, group.counted_fields) or 1.0,
        tracks=len(group.live_tracks) - 1,
        features=len(group.limit_rules) + len(group.parts),
        horizon_ms=horizon_ms,
        tail_ms=tail_ms,
        widths=widths,
    )


def _layout(precision: Precision, horizon_ms: int) -> tuple[int, tuple[Width, ...]]:
    if precision.tail is None:
        return horizon_ms, ()
    begins = [(precision.tail, precision.resolution), *((tier.after, tier.resolution) for tier in precision.tiers)]
    ends = [*(begin for begin, _ in begins[1:]), horizon_ms]
    widths = (
        Width(begin, min(end, horizon_ms), width)
        for (begin, width), end in zip(begins, ends, strict=True)
        if begin < horizon_ms
    )
    return min(precision.tail, horizon_ms), tuple(widths)
