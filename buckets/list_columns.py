"""Columns of lists: building them from their elements, and taking them apart."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s


def element_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the element type of a list type; None for any other type."""
    is_list = (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
    return kind.value_type if is_list else None


def plain_list(column: pa.Array) -> pa.ListArray:
    """Convert a column of lists of any Arrow type to the plain list type."""
    return column if pa.types.is_list(column.type) else column.cast(pa.list_(element_type(column.type)))


def list_of(elements: pa.Array, lengths: Int64s | Sequence[int], valid: Flags) -> pa.ListArray:
    """Build a column of lists; lengths are int `(rows,)`, and 0 where `valid`, bool `(rows,)`, is False."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = None if valid.all() else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=mask)


def without_views(kind: pa.DataType) -> pa.DataType:
    """Replace views by plain texts, bytes and lists in a type, as Arrow's `take` does not support views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(without_views(field.type)) for field in kind.fields])
    of_elements = element_type(kind)
    return kind if of_elements is None else pa.list_(without_views(of_elements))


def rows_of_elements(lists: pa.ListArray) -> Int64s:
    """Return the row of each element of `lists.flatten()`."""
    return np.repeat(np.arange(len(lists)), pc.list_value_length(lists).fill_null(0).to_numpy())
