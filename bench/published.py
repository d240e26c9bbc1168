"""Published numbers to beat: events a second of Flink, measured elsewhere on this kind of machine."""

MANY_KEYS, TEN_WINDOWS = "200,000 keys, N = 5", "ten windows, N = 2,000"
COLUMNS = ("N = 10", "N = 100", "N = 1,000", "N = 10,000", MANY_KEYS, TEN_WINDOWS)
"""Events of a key in the window; in the last two with many keys, and with ten windows of which the longest holds N."""


def _row(*rates: int) -> dict[str, int]:
    return dict(zip(COLUMNS, rates, strict=True))


FLINK = {
    "the reference algorithm on Flink, heap state": _row(182_000, 47_000, 5_600, 890, 152_000, 1_100),
    "the same on Flink, RocksDB state": _row(17_000, 3_300, 400, 45, 24_000, 46),
    "Flink SQL OVER (RANGE ...), heap state": _row(92_000, 131_000, 66_000, 29_000, 60_000, 12_500),
    "Flink SQL OVER (RANGE ...), RocksDB state": _row(24_000, 11_000, 3_800, 750, 25_000, 180),
}


def best(column: str) -> int:
    """The fastest of them in a column."""
    return max(rates[column] for rates in FLINK.values())
