"""Parquet files as pyarrow, pandas and Spark write them: every type and value, by Python's own exact conversion."""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.events.arrivals import BROKEN, DeadLetter, EventColumns, parse
from buckets.events.parquet_rows import check_parquet, field_batches, read_arrivals
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from tests.laws import examples

SCALE = 3
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_370_764_800_000
"""The years 1 to 9998."""
SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": {"field": "at", "earliest": "0001-01-01T00:00:00Z", "latest": "9999-01-01T00:00:00Z"},
        "attributes": {"text": "string", "whole": "long", "flag": "boolean"},
        "measures": {"amount": {"scale": SCALE}},
    }
)
ROLES = ("id", "at", "text", "whole", "flag", "amount")
PER_MS_NS = 10**6
UNIT_NS = {"s": 10**9, "ms": PER_MS_NS, "us": 1000, "ns": 1}
WIDE = Context(prec=400, Emax=10**6, Emin=-(10**6))
REFUSED = object()
"""What a value becomes that has no exact meaning in a field."""


def exact_measure(number: Decimal) -> Any:
    scaled = number.scaleb(SCALE, context=WIDE)
    fits = scaled == scaled.to_integral_value() and INT64_MIN <= scaled <= INT64_MAX
    return int(scaled) if fits else REFUSED


def exact_whole(number: Decimal) -> Any:
    return int(number) if number == number.to_integral_value() and INT64_MIN <= number <= INT64_MAX else REFUSED


def exact_ms(ms: int) -> Any:
    return ms if EARLIEST_MS <= ms < LATEST_MS else REFUSED


@dataclass(frozen=True)
class Meant:
    """What a value means in each role, `REFUSED` where it has no meaning there; None where that is not compared."""

    text: Any = None
    whole: Any = REFUSED
    flag: Any = REFUSED
    amount: Any = REFUSED
    at: Any = REFUSED


def number(value: Decimal | float | int, text: str | None = None) -> Meant:
    """What a number means: in all roles the digits that it has; of binary floating point the shortest."""
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    ms = math.floor(exact) if abs(exact) < 10**20 else 10**30
    return Meant(text, exact_whole(exact), REFUSED, exact_measure(exact), exact_ms(ms))


def floating(value: float, shortest: float, digits: int) -> Meant:
    """What binary floating point means, which keeps so many binary digits: text and a long only if it is whole."""
    if not math.isfinite(value):
        return Meant(text=REFUSED)
    is_exact = abs(value) < 2**digits and value == int(value)
    meant = number(shortest)
    whole = int(value) if is_exact else REFUSED
    return replace(meant, text=str(whole) if is_exact else REFUSED, whole=whole)


def moment(count: int, unit: str, zone: str | None) -> Meant:
    nanoseconds = count * UNIT_NS[unit]
    ms = nanoseconds // PER_MS_NS
    text: Any = None
    if EARLIEST_MS <= ms < LATEST_MS:
        clock = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
        finer = f"{nanoseconds % 1000:03}" if nanoseconds % 1000 else ""
        text = f"{clock.replace(tzinfo=None).isoformat(' ', 'microseconds')}{finer}{'Z' if zone else ''}"
    return Meant(text=text, at=exact_ms(ms))


def written_text(value: str) -> Meant:
    """Text means itself; as a number it is in the tests of columns."""
    return Meant(text=value, whole=None, flag=None, amount=None, at=None)


Column = tuple[pa.Array, list[Meant | None]]


@st.composite
def columns(draw: Callable[..., Any], kinds: st.SearchStrategy[tuple], rows: int) -> Column:
    kind, values, meaning = draw(kinds)
    drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    meant = [None if value is None else meaning(value) for value in drawn]
    return pa.array(drawn, kind), meant


def integer_kind(kind: pa.DataType, low: int, high: int) -> tuple:
    ends = st.sampled_from([low, high, 0, high // 1000, low // 1000])
    return kind, st.integers(low, high) | ends | st.integers(max(low, -99), 99), lambda v: number(v, str(v))


def decimal_kind(maker: Callable[[int, int], pa.DataType], digits: int, scale: int) -> tuple:
    kind = maker(digits, scale)
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1) | st.integers(-99, 10 ** min(digits, 6) - 1).filter(
        lambda count: abs(count) < 10**digits
    )
    values = unscaled.map(lambda count: Decimal(count).scaleb(-scale, context=WIDE))
    return kind, values, lambda value: number(value)


def timestamp_kind(unit: str, zone: str | None) -> tuple:
    near = 10**12 * PER_MS_NS // UNIT_NS[unit]
    # Parquet keeps no seconds: pyarrow writes them as milliseconds.
    far = INT64_MAX // 1000 if unit == "s" else INT64_MAX
    counts = st.integers(-near, near) | st.integers(-far, far) | st.sampled_from([-1, 0, far, -far])
    return pa.timestamp(unit, zone), counts, lambda count: moment(count, unit, zone)


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def single_meant(value: float) -> Meant:
    return floating(value, float(str(np.float32(value))), 24)


DECIMALS = st.one_of(
    *(
        st.integers(1, most).flatmap(
            lambda digits, maker=maker: st.integers(0, digits).map(lambda scale: decimal_kind(maker, digits, scale))
        )
        for maker, most in ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76))
    )
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
NUMBERS = st.one_of(
    *(st.just(integer_kind(kind, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for bits, kind in SIGNED.items()),
    *(st.just(integer_kind(kind, 0, 2**bits - 1)) for bits, kind in UNSIGNED.items()),
    st.just(
        (pa.float64(), st.floats() | st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), lambda v: floating(v, v, 53))
    ),
    st.just((pa.float32(), st.floats(width=32), single_meant)),
    st.just((pa.float16(), st.floats(width=16).map(np.float16), lambda v: floating(float(v), float(v), 11))),
    DECIMALS,
)
TIMES = st.one_of(
    st.tuples(st.sampled_from(list(UNIT_NS)), st.sampled_from([None, "UTC", "Europe/Oslo", "+05:30", "No/Where"])).map(
        lambda unit_and_zone: timestamp_kind(*unit_and_zone)
    ),
    st.just(
        (
            pa.date32(),
            st.integers(-(2**31), 2**31 - 1) | st.integers(-(10**5), 10**5),
            lambda days: Meant(at=exact_ms(days * 86_400_000)),
        )
    ),
)
TEXTS = st.one_of(
    *(
        st.just((kind, TEXT, written_text))
        for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    ),
    *(
        st.just((kind, st.binary(max_size=6), lambda data: Meant(text=utf8(data), whole=None, amount=None, at=None)))
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    ),
    st.just((pa.bool_(), st.booleans(), lambda v: Meant(text=str(v).lower(), flag=v))),
    st.just((pa.duration("us"), st.integers(-(10**15), 10**15), lambda _: Meant(text=REFUSED))),
    st.just((pa.time64("ns"), st.integers(0, 86_400 * 10**9 - 1), lambda _: Meant())),
    st.just((pa.list_(pa.int8()), st.just([1]), lambda _: Meant(text=REFUSED))),
    st.just((pa.null(), st.none(), lambda _: None)),
)


def utf8(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return REFUSED


def read(path: Path, arrival: str | None = None) -> list[tuple[pa.RecordBatch, EventColumns, list[DeadLetter]]]:
    pieces = read_arrivals(path, 5, SCHEMA, arrival)
    return [(piece, *parse(piece, SCHEMA, frozenset())) for piece in pieces]


@st.composite
def files(draw: Callable[..., Any]) -> dict[str, Column]:
    rows = draw(st.integers(1, 5))
    kinds = {"amount": NUMBERS, "whole": NUMBERS, "at": TIMES | NUMBERS, "flag": TEXTS, "text": NUMBERS | TIMES | TEXTS}
    return {name: draw(columns(kinds[name], rows)) for name in kinds}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("parquet") / "day.parquet"


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(files())
def test_every_value_is_taken_to_the_digit_or_is_a_dead_letter(path, written):
    """The first role, in the order of the schema, that refuses a value names it."""
    rows = len(written["at"][0])
    ids = pa.array([f"e{row}" for row in range(rows)])
    pq.write_table(pa.table({"id": ids} | {name: array for name, (array, _) in written.items()}), path)
    ((_, events, dead_letters),) = read(path)
    assert len(events) + len(dead_letters) == rows
    reasons = {each.position - 1: each.reason for each in dead_letters}
    taken = iter(range(len(events)))
    for row in range(rows):
        meant = {name: values[row] for name, (_, values) in written.items()}
        said = {name: None if value is None else getattr(value, name) for name, value in meant.items()}
        refused = [name for name, value in said.items() if value is REFUSED]
        if meant["at"] is None:
            refused.append("at")
        if row in reasons:
            name = reasons[row].split(":")[0]
            assert name in refused or (meant[name] is not None and said[name] is None), (reasons[row], meant)
            continue
        assert not refused, meant
        at = next(taken)
        found = {
            "at": events.times_ms.tolist()[at],
            "amount": events.measures["amount"].to_pylist()[at],
            **{name: events.attributes[name].to_pylist()[at] for name in ("text", "whole", "flag")},
        }
        for name, value in said.items():
            if meant[name] is None:
                assert found[name] is None, name
            elif value is not None:
                assert found[name] == value, (name, meant)


@given(st.lists(st.integers(INT64_MIN // 10**6, INT64_MAX // 10**6), min_size=1, max_size=3))
def test_pandas_nanoseconds_are_cut_down_to_their_millisecond(path, times_ms):
    nanoseconds = [ms * PER_MS_NS + 999_999 for ms in times_ms if ms * PER_MS_NS + 999_999 <= INT64_MAX]
    table = {"id": [f"e{row}" for row in range(len(nanoseconds))], "at": pa.array(nanoseconds, pa.timestamp("ns"))}
    pq.write_table(pa.table(table), path)
    found = [ms for _, events, _ in read(path) for ms in events.times_ms.tolist()]
    assert found == [count // PER_MS_NS for count in nanoseconds]


@pytest.mark.parametrize("year", [1, 1600, 1969, 1970, 2262, 2300, 9998])
def test_the_old_kind_of_timestamps_reaches_all_years(path, year):
    written = datetime(year, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - the old kind has no zone
    columns = {"id": ["e"], "at": pa.array([written], pa.timestamp("us"))}
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
    ((_, events, dead_letters),) = read(path)
    since = written.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert (events.times_ms.tolist(), dead_letters) == ([since // timedelta(milliseconds=1)], [])
    assert not events.times["without_zone"]


def test_text_that_is_no_valid_utf8_is_a_dead_letter_and_harms_no_other_row(path, as_worded):
    offsets, data = pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"\xff\xfea")
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, data])
    pq.write_table(pa.table({"id": text, "at": [1, 1, 1]}), path)
    ((_, events, dead_letters),) = read(path)
    assert events.event_id.to_pylist() == ["a"]
    assert len(dead_letters) == 2
    assert all(as_worded(each.reason) for each in dead_letters)


def test_each_file_has_its_own_types_and_what_it_lacks_is_null(path, as_worded):
    for at, amount, kind in ((1, Decimal("1.5"), pa.decimal128(5, 1)), ("2", Decimal("2.125"), pa.decimal256(70, 60))):
        pq.write_table(pa.table({"id": ["e"], "at": [at], "amount": pa.array([amount], kind)}), path)
        ((_, events, dead_letters),) = read(path)
        assert dead_letters == []
        assert events.measures["amount"].to_pylist() == [int(amount * 1000)]
        assert events.attributes["text"].to_pylist() == [None]
    pq.write_table(pa.table({"other": [1, 2]}), path)
    ((_, _, dead_letters),) = read(path)
    assert len(dead_letters) == 2
    assert all(as_worded(each.reason) for each in dead_letters)


@pytest.mark.slow
def test_large_values_are_read_in_small_pieces(path):
    long = "x" * 10_000_000
    pq.write_table(pa.table({"id": [f"{row}{long}" for row in range(20)], "at": [1] * 20}), path)
    pieces = [piece for piece, _, _ in read(path)]
    assert sum(map(len, pieces)) == 20
    assert max(piece.nbytes for piece in pieces) < 100 * 2**20
    assert [number for piece in pieces for number in piece.column("position").to_pylist()] == list(range(1, 21))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int32(), [3, None], [3, "is missing or null, and gives the arrival order"]),
        (pa.uint64(), [2**63 - 1, 2**63], [2**63 - 1, "is too large to give the arrival order"]),
        (pa.int64(), [INT64_MIN + 1, INT64_MAX], [INT64_MIN + 1, INT64_MAX]),
        (pa.decimal256(60, 0), [Decimal(-7), Decimal(10) ** 50], [-7, "is too large to give the arrival order"]),
        (pa.decimal128(9, 1), [Decimal(1)] * 2, ["is of type decimal128(9, 1), which gives no arrival order"] * 2),
        (pa.timestamp("us", "UTC"), [-1, 7], [-1000, 7000]),
        (pa.timestamp("ns"), [-1, 7], [-1, 7]),
        (pa.timestamp("ms"), [7, INT64_MAX], [7_000_000, "is too large to give the arrival order"]),
        (pa.date32(), [-1, 1], [-86_400 * 10**9, 86_400 * 10**9]),
        (pa.string(), ["3", None], ["is of type string, which gives no arrival order"] * 2),
    ],
)
def test_a_column_orders_rows_by_its_exact_value(path, kind, values, expected):
    columns = {"id": ["a", "b"], "at": [1, 1], "seen": pa.array(values, kind)}
    pq.write_table(pa.table(columns), path)
    ((piece, _, _),) = read(path, "seen")
    orders, broken = piece.column("source_order").to_pylist(), piece.column(BROKEN).to_pylist()
    found = [order if why is None else why.removeprefix("seen: ") for order, why in zip(orders, broken, strict=True)]
    assert found == expected


def damaged(whole: bytes) -> bytes:
    return whole[:8] + b"x" * 20 + whole[28:]


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole[:-9],
        lambda whole: b"",
        damaged,
    ],
    ids=["cut off", "empty", "damaged"],
)
def test_a_file_that_cannot_be_read_is_one_line_that_says_what_to_do(path, change, as_worded):
    pq.write_table(pa.table({"id": ["a"], "at": [1]}), path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BucketsError, check=as_worded) as error:
        read(path)
    assert "\n" not in error.value.message


def test_a_file_that_is_gone_has_two_columns_of_a_name_or_no_order_is_named(path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        read(path.with_name("gone.parquet"))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"]), path)
    with pytest.raises(BucketsError, check=as_worded):
        list(field_batches(path, ["id"]))
    pq.write_table(pa.table({"id": ["a"], "at": [1], "seen": ["x"]}), path)
    with pytest.raises(BucketsError, check=as_worded):
        check_parquet(path, SCHEMA, "seen")
