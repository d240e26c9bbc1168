"""One key's events against its timeline: compiled loops that test, put in and evaluate each event.

Integers and arrays in, integers and arrays out: numpy and numba only. Rules come in as flat arrays;
only `plan`, which makes them, knows rules and settings.
"""
