"""In which order events have arrived: by `source_order`, `source` and `position`."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]


def arrival(table: pa.Table) -> list[Int64s]:
    """Return what orders the arrivals of a table: source_order, source and position, as numbers."""
    order, position = table["source_order"].to_numpy(), table["position"].to_numpy()
    source = whole(table["source"])
    if len(source.dictionary) == 1:
        return [order, position]
    names = source.dictionary.to_pylist()
    rank_of = {name: rank for rank, name in enumerate(sorted(names))}
    rank = np.array([rank_of[name] for name in names], np.int64)[source.indices.to_numpy()]
    return [order, rank, position]


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of numbers or of a dictionary in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.unify_dictionaries().chunks)


def ascend(*columns: Int64s) -> bool:
    """Return whether rows stand in the order of columns, the first of which counts most."""
    if len(columns[0]) < 2:
        return True
    forward = np.diff(columns[-1]) >= 0
    for column in reversed(columns[:-1]):
        step = np.diff(column)
        forward = (step > 0) | ((step == 0) & forward)
    return bool(forward.all())
