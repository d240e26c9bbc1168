"""Sizes: what is read, and what is refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.config.settings import LARGEST_BYTES, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MiB", 256 << 20),
        ("256 mib", 256 << 20),
        ("1.5GiB", 3 << 29),
        ("1TiB", 1 << 40),
        ("4096", 4096),
        (4096, 4096),
        (0, 0),
        ("0", 0),
        ("10KB", 10_000),
        ("7B", 7),
        ("0.5KiB", 512),
        ("1024TiB", LARGEST_BYTES),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "1,5GiB", "1.000.000", "256.MiB", "256'000", "3-5MiB", "25%", "2020-01-01", True, False, None, [], {}, "",
        "abc", "1KiB more", "256MiB/s", "4Mbit", -1, "-1", "10XB", float("inf"), float("nan"), "٣MiB", "1" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused(text, as_worded):
    with pytest.raises(ValueError, check=as_worded) as error:
        parse_size_bytes(text)
    assert len(str(error.value)) < 150


def test_more_than_the_limit_is_refused(as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_size_bytes("1025TiB")


@given(st.integers(0, LARGEST_BYTES))
def test_bytes_are_bytes(size):
    assert parse_size_bytes(size) == parse_size_bytes(f"{size}") == parse_size_bytes(f"{size}B") == size
