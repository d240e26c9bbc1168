"""Writes down when steps of a batch begin and end, in a driver and in Python workers; `timeline.py` puts it to use.

A driver calls `watch_driver`; as `spark.python.daemon.module` it forks workers as `buckets.spark.worker_daemon` does.
"""

import functools
import importlib
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = "BUCKETS_WATCHED"  # The variable that names the folder of what is written
DRIVER, PY4J, WORKER = "driver", "driver, py4j", "worker"
BATCH = "batch"
OF_DRIVER = (
    "buckets.spark.query:ScoringQuery._score_batch",
    "buckets.spark.query:ScoringQuery._check",
    "buckets.spark.query:ScoringQuery._record",
    "buckets.spark.query:score_batch",
    "buckets.spark.scored_batch:run_batch",
    "buckets.spark.query:set_batch",
    "buckets.spark.scored_batch:complete_batch",
    "buckets.spark.sinks:KafkaSink.write",
    "buckets.feeds.rules.rule_book:RuleBook.for_batch",
    "buckets.feeds.rules.rule_book:RuleBook.done",
    "buckets.checkpoint.batch_records:BatchRecords.terms_for",
)
OF_WORKERS = (
    "pyspark.worker:main",
    "pyspark.worker:read_udfs",
    "buckets.spark.windows:convert",
    "buckets.spark.windows:fan_out",
    "buckets.spark.worker:settle",
    "buckets.spark.windows:_kept",
    "buckets.spark.state_client:StateConnection.of_task",
    "buckets.spark.state_client:StateConnection.call",
    "buckets.state.layer:Layer.commit",
    "buckets.engine.stages.shard:Scorer.score",
)
_kept: list[str] = []


def note(where: str, what: str, began_ns: int) -> None:
    """Keep a step that ends now."""
    _kept.append(json.dumps((where, what, began_ns, time.time_ns())) + "\n")


def flush() -> None:
    """Write what has been kept."""
    with Path(os.environ[FOLDER], f"{os.getpid()}.steps").open("a") as file:
        file.writelines(_kept)
    _kept.clear()


def watch(where: str, place: str, then: Callable[[], None] = lambda: None) -> None:
    """Have calls of a function or method, `MODULE:NAME`, written down; of a generator until its end."""
    module, path = place.split(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began_ns = time.time_ns()
        try:
            return function(*args, **kwargs)
        finally:
            note(where, path, began_ns)
            then()

    @functools.wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        began_ns = time.time_ns()
        yield from function(*args, **kwargs)
        note(where, path, began_ns)

    setattr(owner, name, iterate if inspect.isgeneratorfunction(function) else call)


def watch_driver() -> None:
    """Watch what a driver does."""
    client = importlib.import_module("py4j.java_gateway").GatewayClient
    send = client.send_command

    def sent(self: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        began_ns = time.time_ns()
        try:
            return send(self, command, *args, **kwargs)
        finally:
            kind, _, *rest = command.split("\n")
            note(PY4J, f"{kind} {rest[0] if rest else ''}", began_ns)

    client.send_command = sent
    for place in OF_DRIVER[1:]:
        watch(DRIVER, place)

    def ended() -> None:
        note(DRIVER, BATCH, time.time_ns())
        flush()

    watch(DRIVER, OF_DRIVER[0], ended)


def main() -> None:
    """Be the process from which workers are forked."""
    daemon = importlib.import_module("buckets.spark.worker_daemon")
    for name in daemon.LOADED:
        importlib.import_module(name)
    for place in OF_WORKERS[1:]:
        watch(WORKER, place)
    watch(WORKER, OF_WORKERS[0], flush)
    daemon.main()


if __name__ == "__main__":
    main()
