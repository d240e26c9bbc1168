"""Which timelines lie as they would be laid down now, told from their heads alone: trimming changes nothing of them.

Most keys that are visited have a few events, each kept raw and within the horizon of the key's own clock. Their heads
come out as they are, byte by byte, which is told from the first cell. All others have to be laid down to see.
"""

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.compiled import compiled, leaf
from buckets.kernel.plan import GroupPlan
from buckets.numbers import varint
from buckets.timeline.codec import CODEC_VERSION
from buckets.timeline.directory import Directory, new_directory
from buckets.timeline.head import FROM_THE_BEGINNING, read_entry_count, read_head
from buckets.timeline.paging import Paging
from buckets.timeline.tiers import Tiers, kept_from_ms, set_borders, width_at


def are_settled(plan: GroupPlan, heads: ByteStrings, paging: Paging) -> npt.NDArray[np.bool_]:
    """Return which timelines of a group surely lie as they would be laid down now, bool `(keys,)`.

    Args:
        plan: the group's rules and policies.
        heads: the head of each key.
        paging: how timelines are cut.
    """
    group = plan.group
    return _settled(*heads, group.generation, len(group.measures), plan.tiers, plan.horizon_ms, paging.hot_cells)


@compiled
def _settled(pool, head_start, generation, columns, tiers: Tiers, horizon_ms, most_cells):
    """Return which timelines surely lie as they would be laid down now."""
    keys = head_start.shape[0] - 1
    settled, borders = np.zeros(keys, np.bool_), np.zeros(tiers.after_ms.shape[0], np.int64)
    directory = new_directory(np.zeros(2, np.int64), 0)
    for key in range(keys):
        begin, end = head_start[key], head_start[key + 1]
        if begin < end and pool[begin] == CODEC_VERSION and read_entry_count(pool, begin, end) == 0:
            settled[key] = _is_settled(
                pool, begin, end, directory, generation, columns, tiers, borders, horizon_ms, most_cells
            )
    return settled


@leaf
def _is_settled(
    pool, begin, end, directory: Directory, generation, columns, tiers: Tiers, borders, horizon_ms, most_cells
):
    """Return whether a timeline without pages has the form in force, and all of its cells are raw and stay so."""
    clock_ms, since_ms, written_by, _, at, cells, _ = read_head(pool, begin, end, directory, 0)
    if written_by != generation or cells == 0 or cells > most_cells:
        return False
    if since_ms != FROM_THE_BEGINNING and since_ms <= clock_ms - horizon_ms:
        return False
    known, at = varint.read_count(pool, at)
    combined, at = varint.read_count(pool, at)
    _, at = varint.read_count(pool, at)
    first_ms, _ = varint.read_signed(pool, at)
    if known != columns or combined != 0 or first_ms < kept_from_ms(tiers, clock_ms, horizon_ms):
        return False
    set_borders(borders, tiers, clock_ms)
    return width_at(tiers, borders, first_ms) == 1
