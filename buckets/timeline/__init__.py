"""One key's events as cells and pages, in memory and as bytes of the state store.

Cells, the directory of pages, precision tiers, the codec of heads and pages. Pure arrays: numpy and numba only.
Knows no rules, no windows and no store.
"""
