"""Windows for DataFrames (`import buckets.spark as bs`), and the adapter: sources, the query and its stages, sinks.

>>> frame = bs.features(payments, bs.rules("rules.yaml"), bs.schema("schema.yaml"), order_by=["ts", "txn_id"])

The adapter decodes, calls `engine`, encodes and writes. What a batch computes does not belong here.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from buckets.java.java import spark_line

if TYPE_CHECKING:
    from buckets.spark.frame_backtest import backtest
    from buckets.spark.frame_input import FrameError, rules, schema
    from buckets.spark.frames import EvaluatedFrame, evaluate, features, with_features
    from buckets.spark.live import LiveFrame, QueryRules, StreamQuery, stream
    from buckets.spark.live_batch import StreamBatch
    from buckets.spark.session import session_settings

_FROM = {
    "frame_backtest": ("backtest",),
    "frame_input": ("FrameError", "rules", "schema"),
    "frames": ("EvaluatedFrame", "evaluate", "features", "with_features"),
    "live": ("LiveFrame", "QueryRules", "StreamQuery", "stream"),
    "live_batch": ("StreamBatch",),
    "session": ("session_settings",),
}
__all__ = [
    "EvaluatedFrame",
    "FrameError",
    "LiveFrame",
    "QueryRules",
    "StreamBatch",
    "StreamQuery",
    "backtest",
    "evaluate",
    "features",
    "rules",
    "schema",
    "session_settings",
    "stream",
    "with_features",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the DataFrame API only when it is first used, so that workers first choose where pyspark is from."""
        if name not in __all__:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        spark_line(import_module("pyspark").__version__)
        module = next(module for module, names in _FROM.items() if name in names)
        return getattr(import_module(f"buckets.spark.{module}"), name)
