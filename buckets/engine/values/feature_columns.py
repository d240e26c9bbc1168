"""What rules have computed at events as columns, one a feature, without any text in between: what models train on."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.aggregate import Values
from buckets.aggregates.component import COMPUTED, Computed
from buckets.engine.values.feature_rules import Judged
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.numbers.decimal128 import MOST_DIGITS, decimals_of
from buckets.rules.feature import NamedFeature
from buckets.rules.rule import Rule

FEATURES = "features"
"""The output that carries features as columns, a table for a rule and a shard."""
RULE, POSITION, FIRED = "rule_id", "position", "fired"
_NO_EVENTS = np.empty(0, np.int64)


def value_column(name: str) -> str:
    """Return the column of a feature's values."""
    return f"value:{name}"


def exact_column(name: str) -> str:
    """Return the column that says whether its values are exact."""
    return f"exact:{name}"


def warm_column(name: str) -> str:
    """Return the column that says whether all that its window needs has been kept."""
    return f"warm:{name}"


def feature_types(rule: Rule, schema: EventSchema) -> dict[str, pa.DataType]:
    """Return the features of a rule, with the types of their columns.

    Booleans are bool; numbers without digits after the point int64; others decimals with room for 38 digits.
    """
    return {named.name: _type_of(named, schema) for named in rule.named_features()}


def _number_type(scale: int) -> pa.DataType:
    return pa.decimal128(MOST_DIGITS, scale) if scale else pa.int64()


def _type_of(named: NamedFeature, schema: EventSchema) -> pa.DataType:
    """Return the type of a feature: what its aggregate makes of no events has the same digits."""
    aggregate = named.feature.aggregate
    if aggregate.is_boolean:
        return pa.bool_()
    measure = schema.measures.get(named.feature.of or "")
    nothing: list[npt.NDArray[Any]] = [_NO_EVENTS] * len(COMPUTED)
    computed = dict.fromkeys((component for component, _ in named.parts()), Computed(*nothing))
    return _number_type(aggregate.finalize(computed, _OfNoEvents(0 if measure is None else measure.scale)).scale)


class _OfNoEvents:
    """What no events say themselves."""

    times_ms, value = _NO_EVENTS, _NO_EVENTS
    counts = has_value = _NO_EVENTS.astype(np.bool_)

    def __init__(self, scale: int) -> None:
        self.scale = scale


def judged_columns(judged: Judged) -> pa.Table:
    """Return a rule at the events at which it was evaluated.

    Columns are those of every table of output `FEATURES`: `rule_id`, `position` and `fired`; and for each feature its
    values, whether these are exact, and whether they are warm.

    Raises:
        BucketsError: a value has more digits than a decimal has room for.
    """
    types = feature_types(judged.rule, judged.table.schema)
    columns: dict[str, pa.Array] = {}
    for name, of in judged.features.items():
        columns[value_column(name)] = _values(judged.rule, name, of.values, types[name])
        columns |= {exact_column(name): pa.array(of.values.exact), warm_column(name): pa.array(of.warm)}
    positions = judged.table.column(POSITION)[judged.events]
    rule_ids = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), [judged.rule.rule_id])
    return pa.table({RULE: rule_ids, POSITION: pa.array(positions), FIRED: pa.array(judged.fired), **columns})


def _values(rule: Rule, name: str, values: Values, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        numbers = values.scaled == 1 if pa.types.is_boolean(kind) else values.scaled
        return pa.array(numbers, kind, mask=~values.valid)
    try:
        return decimals_of(values.scaled, values.valid, kind)
    except OverflowError:
        message = (
            f"feature {rule.rule_id}.{name}: has a value of more than {MOST_DIGITS} digits, for which a column has no "
            "room; leave the feature out, or take stddev for a variance"
        )
        raise BucketsError(message) from None
