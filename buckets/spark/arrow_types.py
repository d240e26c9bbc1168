"""Convert between Spark and Arrow types identically under every version of pyspark, although their defaults differ."""

from collections.abc import Callable
from functools import partial
from inspect import signature

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

_IN_UTC = {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_type).parameters else {}
"""Timestamps are in UTC, the default of 4.1."""

to_arrow_type: Callable[[DataType], pa.DataType] = partial(types.to_arrow_type, **_IN_UTC)  # type: ignore[arg-type]
to_arrow_schema: Callable[[StructType], pa.Schema] = partial(types.to_arrow_schema, **_IN_UTC)  # type: ignore[arg-type]
from_arrow_type = partial(types.from_arrow_type, prefer_timestamp_ntz=True)
from_arrow_schema = partial(types.from_arrow_schema, prefer_timestamp_ntz=True)
