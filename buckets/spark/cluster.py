"""A session whose tasks run in executors elsewhere: how many there are, and what they get before the first batch.

Executors come one by one after the session has started, and know nothing of the driver's files.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.spark.java_errors import last_error, missing_python
from buckets.spark.stall import watched_start

PARTITIONS = "spark.sql.shuffle.partitions"
_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
_POLL_S = 0.2
_SETTLED_S = 2.0
"""If so long no executor has come, those that are there are all."""
_HELD_S = 1.0
"""For how long a task of the warm-up holds its slot, so that the others go to other executors."""
EXECUTOR_SETTINGS = {
    # What an executor says to its standard error is kept in five files of ten megabytes and no more.
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(10 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "5",
}


def is_local(master: str) -> bool:
    """Return whether the tasks of a master run in the JVM of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def make_ready(session: SparkSession, shards: int | None, patience_ms: int, tell: Callable[[str], None]) -> None:
    """Wait for the executors of a session, and have each load the engine; nothing is done where there are none.

    Args:
        session: the session.
        shards: of the engine, over as many partitions as the executors have cores; None: over what the user has set.
        patience_ms: how long the first executor may take to come, and how long it may take to load the engine.
        tell: told what is done.

    Raises:
        BucketsError: none has come in time, or one cannot load the engine.
    """
    context = session.sparkContext
    if is_local(context.master or ""):
        return
    tell(f"waiting for executors of {context.master}")
    _await_executors(context, patience_ms)
    _quiet_executors(context)
    slots = context.defaultParallelism
    if shards is not None:
        session.conf.set(PARTITIONS, str(min(shards, slots)))
    tell(f"loading the engine on {_executors(context)} executors, {slots} cores")
    with watched_start(patience_ms):
        _load_engine(context, slots)


def _load_engine(context: SparkContext, slots: int) -> None:
    """Have the Python of each executor load the engine and its kernels, compiled if they are not yet.

    Raises:
        BucketsError: one cannot.
    """
    try:
        context.parallelize(range(slots), slots).mapPartitions(_hold).count()
    except Py4JJavaError as error:
        message = missing_python(str(error)) or f"executors cannot load the engine: {last_error(error)}"
        raise BucketsError(message) from error


def _hold(numbers: Iterable[int]) -> Iterator[int]:
    time.sleep(_HELD_S)
    yield from numbers


def _executors(context: SparkContext) -> int:
    """Return how many executors have come; the driver is one of those that Spark counts."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _wanted(context: SparkContext) -> int | None:
    """Return how many executors were asked for; None where that is left to the cluster."""
    instances = context.getConf().get("spark.executor.instances")
    return None if instances is None else int(instances)


def _await_executors(context: SparkContext, patience_ms: int) -> None:
    begun_s = changed_s = time.monotonic()
    known, wanted = 0, _wanted(context)
    while not known or (known != wanted and time.monotonic() - changed_s < _SETTLED_S):
        time.sleep(_POLL_S)
        count = _executors(context)
        if count != known:
            known, changed_s = count, time.monotonic()
        if not known and time.monotonic() - begun_s > patience_ms / 1000:
            message = (
                f"no executor of {context.master} has come within {format_duration(patience_ms)}, the limit of "
                "start_patience; see that the cluster has cores and memory left for one (spark.executor.cores, "
                "spark.executor.memory) and that executors can reach the driver (spark.driver.host)"
            )
            raise BucketsError(message)


def _quiet_executors(context: SparkContext) -> None:
    """Have executors log errors alone, those that come later too, where the user has said nothing about it.

    Spark warns of every key that is new. The driver's log has a file of settings that says so of one logger; a file
    that is sent along is there only after an executor has begun to log.
    """
    conf = context.getConf()
    if conf.get("spark.log.level") is None and "log4j" not in (conf.get(_JAVA_OPTIONS) or ""):
        context._jsc.sc().schedulerBackend().updateExecutorsLogLevel("ERROR")
