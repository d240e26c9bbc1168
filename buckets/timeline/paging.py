"""How timelines are cut into pages."""

from typing import NamedTuple

import numpy as np

from buckets.compiled import leaf


class Paging(NamedTuple):
    """How timelines are cut into pages.

    Attributes:
        page_cells: cells of a page when it is cut off.
        hot_cells: newest cells that always stay in the head; more do until they fill a page.
        most_pages: pages of a timeline; where there are more, neighbours become one.
    """

    page_cells: int
    hot_cells: int
    most_pages: int


BULK = 4
"""How many times larger than `page_cells` a page may be that is cut from a large batch."""


@leaf
def page_size(paging: Paging, cells):
    """Return the cells of the largest page in a timeline of so many cells: half of `most_pages` would hold it.

    So where there are more than `most_pages`, some neighbours fit one page.
    """
    size = np.int64(paging.page_cells)
    while cells > size * (paging.most_pages // 2):
        size *= 2
    return size


@leaf
def cut_size(paging: Paging, cells):
    """Return the cells of pages that many cells are cut into: more where a batch brings many, or fills the directory.

    Where a batch brings many, the edges of later ones pass over as many, and few large pages cost fewer state calls.
    """
    size = np.int64(paging.page_cells)
    while cells > 2 * size and size < BULK * paging.page_cells:
        size *= 2
    while cells > size * max(1, paging.most_pages // 8):
        size *= 2
    return size
