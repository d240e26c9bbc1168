"""Exact sliding windows for every single transaction, on Apache Spark.

What a Python program needs to evaluate events without Spark, and to read what a job has written:

>>> import pyarrow as pa
>>> import buckets
>>> schema = buckets.EventSchema.model_validate(
...     {
...         "event_id": "id",
...         "event_time": "at",
...         "attributes": {"card": "string"},
...         "measures": {"amount": {"scale": 2}},
...     }
... )
>>> rule = buckets.Rule.model_validate(
...     {
...         "rule_id": "card-10m",
...         "group_by": ["card"],
...         "aggregate": {"function": "sum", "measure": "amount"},
...         "window": {"length": "10m"},
...         "limit": {"operator": ">", "value": "100"},
...     }
... )
>>> events = pa.table(
...     {
...         "id": ["e1", "e2", "e3", "e4"],
...         "at": [0, 300_000, 600_000, 1_200_001],
...         "card": ["c1", "c1", "c1", "c1"],
...         "amount": ["40.00", "60.00", "0.50", "99.99"],
...     }
... )
>>> results = buckets.evaluate(events, [rule], schema)
>>> for row in results.evaluations.select(["event_id", "value", "count", "fired"]).to_pylist():
...     print(row["event_id"], row["value"], row["count"], row["fired"])
e1 40.00 1 False
e2 100.00 2 False
e3 100.50 3 True
e4 99.99 1 False
>>> results.alerts["rule"].to_pylist()
['The sum of amount of events of the same card over the last 10m is above 100']

`Evaluator` does the same for tables that arrive one after the other; `backtest` counts what rules would have raised,
also with other numbers and beside confirmed fraud. Schema and rules usually come from files, with `load_event_schema`
and `load_rules`, lists with `load_list`; `read_output` reads the tables of a job as `evaluate` gives them,
`read_verdicts` what people have found about its alerts, and `read_warmth` says since when its rules are complete.
"""

import os.path
from importlib import import_module
from typing import TYPE_CHECKING

if not os.path.isfile(__file__):
    _message = (
        f"buckets is imported from inside of an archive, {os.path.dirname(os.path.dirname(__file__))}, and needs its "
        "files on a disk, where its kernels are compiled: leave --py-files out and send an environment in which the "
        "wheel is installed with --archives; see the guide on clusters"
    )
    raise ImportError(_message)

if TYPE_CHECKING:
    from buckets.checkpoint.driver_state import read_warmth as read_warmth
    from buckets.config.engine import EngineSettings as EngineSettings
    from buckets.config.job import load_engine_settings as load_engine_settings
    from buckets.engine.stages.accounting import BatchAccount as BatchAccount
    from buckets.engine.stages.accounting import GroupAccount as GroupAccount
    from buckets.errors import BucketsError as BucketsError
    from buckets.evaluation import Evaluator as Evaluator
    from buckets.evaluation import Results as Results
    from buckets.evaluation import evaluate as evaluate
    from buckets.evaluation import features as features
    from buckets.events.schema import EventSchema as EventSchema
    from buckets.events.schema import load_event_schema as load_event_schema
    from buckets.history.backtest.backtest import backtest as backtest
    from buckets.history.backtest.report import BacktestReport as BacktestReport
    from buckets.history.replay.replay import replay as replay
    from buckets.lists.list_file import load_list as load_list
    from buckets.outputs.recorded_outputs import read_output as read_output
    from buckets.rule_files.yaml_rules import load_rules as load_rules
    from buckets.rules.rule import Rule as Rule
    from buckets.rules.warmth import Warmth as Warmth
    from buckets.verdicts.verdict_table import read_verdicts as read_verdicts

__version__ = "0.1.0"
_MODULES = {
    "BacktestReport": "buckets.history.backtest.report",
    "BatchAccount": "buckets.engine.stages.accounting",
    "BucketsError": "buckets.errors",
    "EngineSettings": "buckets.config.engine",
    "EventSchema": "buckets.events.schema",
    "Evaluator": "buckets.evaluation",
    "GroupAccount": "buckets.engine.stages.accounting",
    "Results": "buckets.evaluation",
    "Rule": "buckets.rules.rule",
    "Warmth": "buckets.rules.warmth",
    "backtest": "buckets.history.backtest.backtest",
    "evaluate": "buckets.evaluation",
    "features": "buckets.evaluation",
    "load_engine_settings": "buckets.config.job",
    "load_event_schema": "buckets.events.schema",
    "load_list": "buckets.lists.list_file",
    "load_rules": "buckets.rule_files.yaml_rules",
    "read_output": "buckets.outputs.recorded_outputs",
    "read_verdicts": "buckets.verdicts.verdict_table",
    "read_warmth": "buckets.checkpoint.driver_state",
    "replay": "buckets.history.replay.replay",
}
__all__ = sorted(_MODULES)

if not TYPE_CHECKING:  # mypy would take every name for one that is there

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for: setting up runs `buckets.java` in a Python without dependencies."""
        if name not in _MODULES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
