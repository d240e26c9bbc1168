"""Types of Spark as Arrow's, and back: the same with each version of pyspark, whose defaults differ."""

from collections.abc import Callable
from functools import partial
from inspect import signature

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

_IN_UTC = {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_type).parameters else {}
"""Times are in UTC, which is 4.1's default."""

to_arrow_type: Callable[[DataType], pa.DataType] = partial(types.to_arrow_type, **_IN_UTC)  # type: ignore[arg-type]
to_arrow_schema: Callable[[StructType], pa.Schema] = partial(types.to_arrow_schema, **_IN_UTC)  # type: ignore[arg-type]
from_arrow_type = partial(types.from_arrow_type, prefer_timestamp_ntz=True)
from_arrow_schema = partial(types.from_arrow_schema, prefer_timestamp_ntz=True)
