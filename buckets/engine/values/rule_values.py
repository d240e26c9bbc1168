"""The values of rules, which the kernel gives as integers, as the decimals of the outputs."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events.schema import EventSchema
from buckets.kernel.plan import GroupPlan
from buckets.numbers.decimal128 import decimals
from buckets.outputs.columns import value_type

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


def value_maker(plan: GroupPlan, schema: EventSchema, rules: Int32s) -> Callable[[Int64s, Int32s], pa.Array]:
    """What makes decimals of `columns.value_type` of the whole and millionth parts of values.

    Args:
        plan: the plan of the rules' group.
        schema: the event schema.
        rules: for each value the index of its rule, `(n,)`.
    """
    kind = value_type(schema.largest_scale)
    scales = [0 if rule.measure is None else schema.measures[rule.measure].scale for rule in plan.rules]
    # How many of the last digits of a decimal make one unit of a rule's values.
    factors = np.array([10 ** (kind.scale - scale) for scale in scales], np.int64)[rules]
    return lambda whole, micro: decimals(whole, micro, factors, kind)
