"""One key's events against its timeline: compiled loops that test, insert and evaluate each event.

Integers and arrays in, integers and arrays out: numpy and numba only. Rules come in as flat arrays;
only `plan`, which builds them, knows rules and settings.
"""
