"""One key's events as cells and pages, in memory and as bytes of the state store.

It has cells, the directory of pages, precision tiers, and the codec of heads and pages. Pure arrays: numpy and numba
only, without rules, windows or a store.
"""
