"""Exact numbers: fixed-point decimals as 64-bit integers, 128-bit sums, quotients, varints, Arrow's decimals.

Nothing here knows what a number stands for. Imports numpy, numba and pyarrow; nothing of this project but `compiled`.
"""
