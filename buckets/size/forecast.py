"""The needs of a workload, by the constants of a machine: cores, memory, state, traffic, delay, and the first limit.

The duration of a batch is the sequential work of the driver and Java, plus the rest of its work divided among the
tasks. If each batch begins when the last one has ended, its size is the number of events that arrive during a batch; if
that would grow without bound, the job does not keep up.
"""

from dataclasses import dataclass
from functools import cached_property
from math import floor, log10

from buckets.size.constants import PAGE_CELLS, TERMS, Constants, PerTerm, State, batch_amounts
from buckets.size.workload import Workload

SPARE = 0.7  # The planned share of a core's time; the rest is for bursts and restarts
EVEN = 0.88
"""The share of the tasks' time that is used, since some keys are busier than others; measured with eight tasks."""
LONGEST_BATCH_S = 10.0  # For a job that does not keep up and has unbounded batches
IN_A_ROW = "batches"  # The term of the driver's sequential work on a batch
_US = 1e6
_ROUNDS = 200
_ROUNDED = 1e-6


@dataclass(frozen=True)
class Batch:
    """A micro-batch."""

    rows: float  # its events
    amounts: PerTerm  # its amounts of work
    python_us: dict[str, float]  # CPU of Python by term
    jvm_us: dict[str, float]  # CPU of Java by term

    @classmethod
    def of(cls, rows: float, amounts: PerTerm, constants: Constants) -> "Batch":
        """Return a batch with the costs of these amounts of work."""
        work = amounts.costs(constants.jvm_us)
        jvm_us = {name: cost * (1 + constants.collector) for name, cost in work.items()}
        return cls(rows, amounts, amounts.costs(constants.python_us), jvm_us)

    @property
    def cpu_us(self) -> dict[str, float]:
        """All CPU by term."""
        return {name: self.python_us[name] + self.jvm_us[name] for name in TERMS}

    @property
    def cpu_s(self) -> float:
        """All CPU."""
        return sum(self.cpu_us.values()) / _US

    @property
    def in_a_row_s(self) -> float:
        """The minimal duration, with any number of cores."""
        return self.cpu_us[IN_A_ROW] / _US

    def duration_s(self, slots: float) -> float:
        """Return its duration with so many concurrent tasks."""
        return self.in_a_row_s + (self.cpu_s - self.in_a_row_s) / slots


@dataclass(frozen=True)
class Item:
    """An item of the CPU bill."""

    name: str  # the term that is paid for
    count_s: float  # its amount per second
    each_us: float  # its unit cost
    cores: float  # its total cost


@dataclass(frozen=True)
class Capacity:
    """A limit, and how much of it is needed."""

    name: str  # the limited resource, such as cores or memory
    needed: float  # how much
    there: float  # the available amount
    by: str = ""  # the constant with the largest share of the need; empty without one

    @property
    def used(self) -> float:
        """The needed share; above 1 the limit is exceeded."""
        return self.needed / self.there


@dataclass(frozen=True)
class Forecast:
    """The needs of a workload."""

    workload: Workload  # the workload asked about
    constants: Constants  # the machine's constants
    state: State  # the size of its state
    batch: Batch  # a typical micro-batch
    largest: Batch  # a batch of the greatest size, with the least cost per event

    @property
    def period_s(self) -> float:
        """The interval between batches, if the whole stream is scored."""
        return self.batch.rows / self.workload.rate

    @property
    def keeps_up(self) -> bool:
        """Whether a batch ends before the next one is due, and covers all arrivals."""
        workload = self.workload
        is_whole = workload.most_rows is None or workload.rate * workload.interval_s <= workload.most_rows
        return is_whole and self.duration_s <= self.period_s * (1 + _ROUNDED)

    @property
    def duration_s(self) -> float:
        """The duration of a batch."""
        return self.batch.duration_s(slots_of(self.workload))

    @property
    def delay_s(self) -> float:
        """The average delay until an event is decided: half a period, and its own batch."""
        return self.period_s / 2 + self.duration_s

    @property
    def python_cores(self) -> float:
        """The cores that Python keeps busy."""
        return sum(self.batch.python_us.values()) / _US / self.period_s

    @property
    def jvm_cores(self) -> float:
        """The cores that Java keeps busy."""
        return sum(self.batch.jvm_us.values()) / _US / self.period_s

    @property
    def cores(self) -> float:
        """The cores needed to keep up, including a reserve."""
        return self.largest.cpu_s * self.workload.rate / self.largest.rows / SPARE

    @property
    def bill(self) -> list[Item]:
        """The uses of CPU, the largest first."""
        costs, amounts = self.batch.cpu_us, self.batch.amounts
        items = [
            Item(name, count / self.period_s, costs[name] / count, costs[name] / _US / self.period_s)
            for name in TERMS
            if (count := getattr(amounts, name)) and costs[name]
        ]
        return sorted(items, key=lambda item: -item.cores)

    @property
    def put_bytes_s(self) -> float:
        """The bytes per second put into the state store, and so written to the checkpoint, before compression."""
        return sum(self.batch.amounts.costs(self.constants.put_bytes).values()) / self.period_s

    @property
    def living_keys(self) -> float:
        """The number of keys with an event within the horizon, over all groupings."""
        return sum(held.keys for held in self.state.kept)

    @property
    def remembered(self) -> float:
        """The share of a batch's keys that are not cold."""
        return 1 - self.batch.amounts.cold / self.batch.amounts.keys

    @property
    def known_bytes(self) -> float:
        """The memory for keys that are remembered."""
        return min(self.state.memory_bytes, self.workload.log_bytes + self.workload.cache_bytes)

    @property
    def memory_bytes(self) -> float:
        """The memory of all processes."""
        memory, cluster = self.constants.memory, self.workload.cluster
        machines = cluster.machines * memory.jvm + cluster.cores * memory.worker
        return memory.driver + machines + self.batch.amounts.touches * memory.touch + self.known_bytes

    @cached_property
    def limits(self) -> list[Capacity]:
        """All limits, the one reached first at the beginning."""
        return sorted(_limits(self), key=lambda limit: -limit.used)


def slots_of(workload: Workload) -> float:
    """Return the number of tasks that effectively run at once, in whole ones, given their unevenness."""
    slots = min(workload.tasks, workload.cluster.cores)
    return slots * EVEN if slots > 1 else 1.0


def forecast(workload: Workload, constants: Constants) -> Forecast:
    """Return the needs of a workload once its timelines have reached their full length."""
    kept = [grouping.kept(workload.rate) for grouping in workload.groupings]
    state = State.of(workload, constants.stored, kept)
    most = workload.rate * (workload.interval_s or LONGEST_BATCH_S)
    most = min(most, workload.most_rows or most)
    rows = most if workload.interval_s else _settled(workload, constants, state, most)
    batch, largest = (batch_of(workload, constants, state, each) for each in (rows, most))
    return Forecast(workload, constants, state, batch, largest)


def batch_of(workload: Workload, constants: Constants, state: State, rows: float) -> Batch:
    """Return a batch of `rows` events."""
    return Batch.of(rows, batch_amounts(workload, state, rows), constants)


def _settled(workload: Workload, constants: Constants, state: State, most: float) -> float:
    """Return the batch size that equals the number of events arriving during the batch; `most` if there is none.

    The duration grows more slowly than the number of events. So if the largest batches do not keep up, none do;
    otherwise bisection finds the smallest that do.
    """
    slots = slots_of(workload)

    def is_behind(rows: float) -> bool:
        return batch_of(workload, constants, state, rows).duration_s(slots) * workload.rate > rows

    if is_behind(most):
        return most
    least = 0.0
    for _ in range(_ROUNDS):
        middle = (least + most) / 2
        if is_behind(middle):
            least = middle
        else:
            most = middle
    return most


def _limits(found: Forecast) -> list[Capacity]:
    workload, constants, batch = found.workload, found.constants, found.largest
    cluster, period_s = workload.cluster, batch.rows / workload.rate
    cpu, slots = batch.cpu_us, slots_of(workload)
    shared = {name: cost for name, cost in cpu.items() if name != IN_A_ROW}
    written = batch.amounts.costs(constants.put_bytes)
    limits = [
        Capacity("cores", found.cores, cluster.cores, max(cpu, key=cpu.__getitem__)),
        Capacity("tasks", sum(shared.values()) / _US / period_s / SPARE, slots, max(shared, key=shared.__getitem__)),
        Capacity("driver", batch.in_a_row_s / period_s, 1.0, IN_A_ROW),
        Capacity("time", batch.duration_s(slots), period_s, max(cpu, key=cpu.__getitem__)),
        Capacity(
            "disk",
            sum(written.values()) / period_s,
            constants.disk_bytes_s * cluster.machines,
            max(written, key=written.__getitem__),
        ),
    ]
    if cluster.memory_bytes is not None:
        limits.append(Capacity("memory", found.memory_bytes, cluster.memory_bytes))
    if workload.most_rows is not None and workload.interval_s:
        limits.append(Capacity("rows", workload.rate * workload.interval_s, workload.most_rows))
    costs = constants.python_us
    each_us = costs.copies + costs.values * workload.event_fields + costs.touches + costs.pages / PAGE_CELLS
    of_all = [each_us + grouping.features * costs.features for grouping in workload.groupings if not grouping.fields]
    if of_all:
        limits.append(Capacity("one key", workload.rate * max(of_all) / _US, 1.0, "values"))
    return limits


LIMITS = {
    "cores": ("cores", "give the job more cores and as many partitions, or fewer groupings"),
    "tasks": ("tasks that score at once", "give it more partitions, which asks for as many shards and cores"),
    "driver": (
        "the driver, s a second",
        "let batches be larger and fewer (trigger.interval, source.max_offsets_per_trigger)",
    ),
    "time": (
        "time of a batch, s",
        "give it more partitions and cores, or larger batches (trigger.interval, source.max_offsets_per_trigger)",
    ),
    "disk": (
        "disk of the checkpoint, bytes a second",
        "keep more keys in memory (state.log, state.cache), or spread the state over more machines",
    ),
    "memory": ("memory", "lower state.log and state.cache, or have more memory"),
    "rows": ("events of a batch", "raise source.max_offsets_per_trigger, or let batches begin more often"),
    "one key": (
        "the key of all events, cores",
        "group by a field, since one key is scored by one core at a time",
    ),
}
"""The wording of each limit, and the remedy if it is exceeded."""
_PREFIXES = ("", "k", "M", "G", "T", "P")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def amount_text(number: float) -> str:
    """Write a number with three digits: `0.0123`, `4.57`, `12,300`, `1.53M`."""
    if number < 1_000_000:
        rounded = _rounded(number)
        return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
    return _scaled(number, _PREFIXES, "")


def size_text(size: float) -> str:
    """Write bytes with three digits and a unit of thousands: `1.5 GB`."""
    return _scaled(size, _BYTE_UNITS, " ")


def _scaled(number: float, units: tuple[str, ...], gap: str) -> str:
    rounded, power = _rounded(number), 0
    while rounded >= 1000 and power < len(units) - 1:
        rounded, power = rounded / 1000, power + 1
    shown = f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"
    return f"{shown}{gap}{units[power]}"


def _rounded(number: float) -> float:
    if number <= 0:
        return 0.0
    return round(number, 2 - floor(log10(number)))
