"""One dead letter for each event, with all its reasons, in arrival order."""

from itertools import groupby

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from buckets.engine.batch.dead_letters import one_dead_letter_per_event
from buckets.outputs.columns import DEAD_LETTER_COLUMNS

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "source": st.sampled_from("ab"),
            "source_order": st.integers(0, 1),
            "position": st.integers(0, 2),
            "reason": st.sampled_from(["x", "y", "z; é"]),
            "raw": st.sampled_from(["", "line", None]),
        }
    ),
    max_size=12,
)


def joined(rows: list[dict]) -> list[dict]:
    """The same by a loop over a list; a missing row text comes last, as in a sorted table."""

    def event(row: dict) -> tuple:
        return row["source_order"], row["position"], row["source"], row["raw"] is None, row["raw"] or ""

    groups = [list(each) for _, each in groupby(sorted(rows, key=event), key=event)]
    return [each[0] | {"reason": "; ".join(sorted({row["reason"] for row in each}))} for each in groups]


@given(ROWS, st.integers(0, 12))
def test_an_event_has_one_row_with_each_of_its_reasons_once(rows, cut):
    pieces = [pa.Table.from_pylist(part, DEAD_LETTER_COLUMNS) for part in (rows[:cut], rows[cut:])]
    found = one_dead_letter_per_event(pa.concat_tables(pieces))
    assert found.to_pylist() == joined(rows)
    assert found.schema == DEAD_LETTER_COLUMNS
