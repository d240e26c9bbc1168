"""The meeting of parts of some events, apart from the driver: what it leaves for the driver to decide about.

Where the parts of a batch are too many for one process, each task judges the rules at some of the events, puts out
their evaluations, and hands on the parts of events at which a rule fires. The driver judges these as it judges all
parts otherwise (`shard.cross_group_outputs`), and decides what becomes of them, key by key.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch import payload
from buckets.engine.batch.keyed_table import KeyedTable
from buckets.engine.stages.cross_group import PARTS, meet
from buckets.engine.stages.pieces import compact, event_numbers
from buckets.engine.stages.shard import Produced, Scorer
from buckets.rules.rule_set import RuleSet

Int64s = npt.NDArray[np.int64]


def fired_parts(scorer: Scorer, payloads: Sequence[bytes], rule_set: RuleSet) -> Iterator[Produced]:
    """Yield the evaluations of rules that span groups, and the parts of events at which one fires.

    Where policies remember something, the latest event of each key stays too: the time of its key decides when that is
    forgotten.

    Args:
        scorer: the settings.
        payloads: of output `PARTS`, all that there are of some events.
        rule_set: the rules of the batch.
    """
    kept: list[Int64s] = []
    for group, judged in meet(payloads, rule_set, scorer.schema, scorer.lists):
        numbers = event_numbers(judged.table.events)
        kept.append(numbers[judged.events[judged.fired]])
        if group.policies:
            kept.append(numbers[_latest(judged.table)])
        yield from (one for one in scorer.conditions(judged, rule_set.version) if one.rows)
    wanted = np.unique(np.concatenate(kept)) if kept else np.empty(0, np.int64)
    for packed in payloads:
        table = payload.unpack(packed)
        left = table.filter(pa.array(np.isin(event_numbers(table), wanted)))
        if len(left):
            yield Produced(PARTS, 0, payload.pack(packed[:1], compact(left), payload.group_of(table)))


def _latest(table: KeyedTable) -> Int64s:
    """Return for each key that occurs the event with the greatest time."""
    order = np.lexsort((table.column("time_ms"), table.codes))
    is_last = np.append(np.diff(table.codes[order]) != 0, True) if len(order) else np.empty(0, np.bool_)
    return order[is_last]
