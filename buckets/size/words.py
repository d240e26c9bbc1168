"""Terms and bounds in words, and numbers as people read them."""

from math import floor, log10

TERM_WORDS = {
    "batches": "batches",
    "tasks": "tasks of batches",
    "shards": "shards that a batch touches",
    "cells": "groupings in shards",
    "rows": "events read",
    "texts": "events decoded from text",
    "copies": "events sent to shards",
    "values": "fields of events sent to shards",
    "touches": "touches: events in groupings",
    "keys": "keys of a batch",
    "kilobytes": "KiB of entries written",
    "features": "features computed",
    "conditions": "conditions evaluated",
    "cold": "cold keys",
    "moved": "keys moved from the log to the store",
    "visits": "keys visited for eviction",
    "pages": "pages of long timelines",
}
LIMIT_WORDS = {
    "cores": "cores",
    "tasks": "tasks that score at once",
    "driver": "the driver, s a second",
    "time": "time of a batch, s",
    "disk": "disk of the checkpoint, bytes a second",
    "memory": "memory",
    "rows": "events of a batch",
    "one key": "the key of all events, cores",
}
ADVICE = {
    "cores": "give the job more cores and as many partitions, or fewer groupings",
    "tasks": "give it more partitions, which asks for as many shards and cores",
    "driver": "let batches be larger and fewer (trigger.interval, source.max_offsets_per_trigger)",
    "time": "give it more partitions and cores, or larger batches (trigger.interval, source.max_offsets_per_trigger)",
    "disk": "keep more keys in memory (state.log, state.cache), or spread the state over more machines",
    "memory": "lower state.log and state.cache, or have more memory",
    "rows": "raise source.max_offsets_per_trigger, or let batches begin more often",
    "one key": "group by a field, since one key is scored by one core at a time",
}
_PREFIXES = ("", "k", "M", "G", "T", "P")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def amount_text(number: float) -> str:
    """Write a number with three digits: `0.0123`, `4.57`, `12,300`, `1.53M`."""
    if number < 1_000_000:
        rounded = _rounded(number)
        return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
    return _scaled(number, _PREFIXES, "")


def size_text(size: float) -> str:
    """Write bytes with three digits and a unit of thousands: `1.5 GB`."""
    return _scaled(size, _BYTE_UNITS, " ")


def _scaled(number: float, units: tuple[str, ...], gap: str) -> str:
    rounded, power = _rounded(number), 0
    while rounded >= 1000 and power < len(units) - 1:
        rounded, power = rounded / 1000, power + 1
    shown = f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"
    return f"{shown}{gap}{units[power]}"


def _rounded(number: float) -> float:
    """Round to three digits; numbers that have more in front of the point to a whole."""
    if number <= 0:
        return 0.0
    return round(number, 2 - floor(log10(number)))
