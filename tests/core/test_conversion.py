"""Columns as they arrive, text or typed, into the engine's types; what does not fit is named row by row."""

import struct
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.events import conversion
from buckets.events.schema import LARGEST_SCALE, EventTime, Measure
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from tests.laws import examples

IN_MS, IN_S, ISO = (EventTime.model_validate({"field": "t", "unit": unit}) for unit in ("ms", "s", "iso8601"))
WIDE = EventTime(field="t", earliest=datetime(1, 1, 1, tzinfo=UTC), latest=datetime(9999, 12, 31, tzinfo=UTC))
MOST = "92233720368547758.07"
LONG = "8056.89097645068570789748662808562022032399146"
"""With more digits than Arrow's parser notices, it reads 0."""
ODD_NUMBERS = [
    "",
    " ",
    " 1",
    "1 ",
    "+1",
    "-0",
    "1.",
    ".5",
    "1e2",
    "1E-2",
    "1_0",
    "0x1F",
    "NaN",
    "inf",
    "٣",
    "1,5",
    "1\x00",
]
SCALES = st.integers(0, LARGEST_SCALE)
NUMBER_TEXTS = st.one_of(
    st.none(),
    st.integers(-(10**4), 10**4).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6).map(str),
    st.from_regex(r"[+-]?[0-9]{0,20}(\.[0-9]{0,20})?(e[+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from([*ODD_NUMBERS, str(INT64_MAX), str(INT64_MIN), str(INT64_MAX + 1), "92233720368547758.07"]),
    st.text(max_size=4),
)


NO_WHOLE = "{} is floating point and no whole number, as a text or a long must be; write text or integers"
TOO_LARGE = "{} is floating point of {:,} or more, whose last digits are lost; write text or integers"


def new_year(year: int) -> datetime:
    """Its first moment, without a zone."""
    return datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def measures(column: pa.Array, scale: int) -> tuple:
    """The integers and what does not fit, of a measure that rounds nothing."""
    values, faults, rounded = conversion.measures(column, Measure(scale=scale))
    assert rounded is None
    return values, faults


def text(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def alone(values: list, kind: pa.DataType, convert) -> tuple[list, dict[int, str]]:
    """What each row gives when it is the only one of its column."""
    found, faults = [], {}
    for row, value in enumerate(values):
        one, fault = convert(pa.array([value], kind))
        found.append(one.tolist()[0])
        if fault:
            faults[row] = fault[0]
    return found, faults


def whole(values: list, kind: pa.DataType, convert) -> tuple[list, dict[int, str]]:
    found, faults = convert(pa.array(values, kind))
    return found.tolist(), faults


# Measures


@pytest.mark.parametrize(
    ("written", "scaled"),
    [
        ("12.34", 1234),
        ("-12.34", -1234),
        ("+1", 100),
        ("1.", 100),
        (".5", 50),
        ("1e2", 10_000),
        ("1.5E-1", 15),
        ("0" * 50 + "1", 100),
        ("1." + "0" * 50, 100),
        ("92233720368547758.07", INT64_MAX),
        ("-92233720368547758.08", INT64_MIN),
    ],
)
def test_a_measure_in_text_is_read_exactly(written, scaled):
    values, faults = measures(text(written, "1"), 2)
    assert (values.tolist(), faults) == ([scaled, 100], {})


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        *(
            (odd, f"{odd!r} is not a decimal number")
            for odd in ["", " 1", "1 ", "1_0", "0x1F", "NaN", "inf", "٣", "1,5"]
        ),
        ("Infinity", "'Infinity' is not a decimal number"),
        ("9" * 65, f"{'9' * 64}… is too large: at scale 2 a measure holds up to {MOST}"),
        ("1.005", "1.005 has more than 2 digits after the point"),
        (LONG, f"{LONG} has more than 2 digits after the point"),
        ("-7053008993846e-41", "-7053008993846e-41 has more than 2 digits after the point"),
        ("1e-3", "1e-3 has more than 2 digits after the point"),
        (
            "92233720368547758.08",
            "92233720368547758.08 is too large: at scale 2 a measure holds up to " + MOST,
        ),
        ("1e40", "1e40 is too large: at scale 2 a measure holds up to " + MOST),
        ("9" * 39, f"{'9' * 39} is too large: at scale 2 a measure holds up to {MOST}"),
        ("9" * 60, f"{'9' * 60} is too large: at scale 2 a measure holds up to {MOST}"),
    ],
)
def test_a_measure_that_does_not_fit_is_named_and_harms_no_other_row(written, reason):
    values, faults = measures(text("1", written, None, "2.50"), 2)
    assert faults == {1: reason}
    assert [values[0], values[2], values[3]] == [100, 0, 250]


@pytest.mark.parametrize(
    ("array", "scaled", "faults"),
    [
        (pa.array([5, -7, None]), [500, -700, 0], {}),
        (pa.array([5, -7, None], pa.int8()), [500, -700, 0], {}),
        (pa.array([2**63 // 100], pa.int64()), [(2**63 // 100) * 100], {}),
        (pa.array([2**64 - 1, 3, None], pa.uint64()), [0, 300, 0], {0: "18446744073709551615 is too large"}),
        (pa.array([INT64_MIN, 3]), [0, 300], {0: "-9223372036854775808 is too large"}),
        (pa.array([0.1, 2.5, None]), [10, 250, 0], {}),
        (pa.array([0.1], pa.float32()), [10], {}),
        (pa.array([0.005, 1.0]), [0, 100], {0: "0.005 has more than 2 digits after the point"}),
        (pa.array([float("nan"), float("inf"), 1.0]), [0, 0, 100], {0: "'nan' is not", 1: "'inf' is not"}),
        (pa.array([1e20, 1e15]), [0, 10**17], {0: "1e+20 is too large"}),
        (pa.array([Decimal("1.50"), None]), [150, 0], {}),
        (pa.array([Decimal("1.005"), Decimal(2)], pa.decimal128(9, 3)), [0, 200], {0: "1.005 has more than 2 digits"}),
        (pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), [0], {0: "9" * 38 + " is too large"}),
        (
            pa.array([Decimal("1e50"), Decimal(1)], pa.decimal256(60, 0)),
            [0, 100],
            {0: "1" + "0" * 50 + " is too large"},
        ),
        (pa.array([Decimal("1E+3")], pa.decimal128(9, -3)), [100_000], {}),
        (pa.array([True]), [0], {0: "'true' is not a decimal number"}),
        (pa.nulls(2), [0, 0], {}),
        (pa.array([], pa.string()), [], {}),
        (pa.array([], pa.decimal128(9, 2)), [], {}),
        (pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("3.00")])[1:], [200, 300], {}),
    ],
)
def test_a_typed_measure_is_read_exactly(array, scaled, faults):
    values, found = measures(array, 2)
    assert values.tolist() == scaled
    assert values.dtype == np.int64
    assert {row: reason[: len(faults.get(row, ""))] for row, reason in found.items()} == faults


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.lists(NUMBER_TEXTS, max_size=6), SCALES)
def test_measures_in_text_do_not_depend_on_the_other_rows(values, scale):
    def convert(array):
        return measures(array, scale)

    assert whole(values, pa.string(), convert) == alone(values, pa.string(), convert)


@settings(max_examples=examples(300))
@given(NUMBER_TEXTS.filter(lambda value: value is not None), SCALES)
def test_the_short_way_reads_measures_as_the_long_way_does(value, scale):
    """A row of 40 characters sends its whole column the long way."""
    short, short_faults = measures(text(value), scale)
    long, long_faults = measures(text(value, "0" * 40), scale)
    assert (short[0], short_faults) == (long[0], long_faults)


@given(
    st.lists(st.one_of(st.none(), st.integers(INT64_MIN, INT64_MAX), st.integers(-99, 99)), max_size=5),
    SCALES,
)
def test_integers_are_read_as_their_text_is(values, scale):
    in_text = [None if value is None else str(value) for value in values]
    typed, faults = measures(pa.array(values, pa.int64()), scale)
    expected, expected_faults = measures(pa.array(in_text, pa.string()), scale)
    assert (typed.tolist(), faults) == (expected.tolist(), expected_faults)


@given(st.lists(st.floats(-(10**12), 10**12).map(lambda value: round(value, 2)), min_size=1, max_size=5))
def test_binary_floating_point_is_read_by_its_shortest_decimal_text(values):
    scaled, faults = measures(pa.array(values), 2)
    assert faults == {}
    assert scaled.tolist() == [int(Decimal(repr(value)) * 100) for value in values]


WIDEST = Context(prec=200, Emax=9999, Emin=-9999)


def half_even(number: Decimal, scale: int) -> int:
    """A number in units of a scale, as Fraction rounds, which the conversion knows nothing of."""
    return round(Fraction(number) * 10**scale)


@pytest.mark.parametrize(
    ("written", "scaled"),
    [
        ("-115.18646199999999", -11519),
        ("0.125", 12),
        ("0.135", 14),
        ("0.1250000000000000000000000000000000000000000001", 13),
        ("-0.125", -12),
        ("0.005", 0),
        ("-0.005", 0),
        ("0.0050000001", 1),
        ("5e-3", 0),
        ("6e-3", 1),
        ("1e-9999999999999", 0),
        ("99999999999999999.5e-3", 10_000_000_000_000_000),
    ],
)
def test_a_value_with_more_digits_is_rounded_half_even_where_its_measure_says_so(written, scaled):
    values, faults, rounded = conversion.measures(text("1", written, None), Measure(scale=2, round="half_even"))
    assert (values.tolist(), faults, rounded.tolist()) == ([100, scaled, 0], {}, [False, True, False])


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.none()
        | st.decimals(allow_nan=False, allow_infinity=False, min_value=-20, max_value=20)
        | st.decimals(allow_nan=False, allow_infinity=False, places=19, min_value=-9, max_value=9)
        | st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 20)).map(lambda of: Decimal(f"{of[0]}5e-{of[1]}")),
        max_size=6,
    ),
    SCALES,
    st.sampled_from(["text", "decimal"]),
)
def test_rounding_is_that_of_fractions_and_is_counted(numbers, scale, form):
    measure = Measure(scale=scale, round="half_even")
    column = text(*(None if number is None else str(number) for number in numbers))
    if form == "decimal":
        kept = [None if number is None else number.quantize(Decimal("1e-24"), context=WIDEST) for number in numbers]
        numbers = [None if number is None or abs(number) >= 10**14 else number for number in kept]
        column = pa.array(numbers, pa.decimal128(38, 24))
    values, faults, rounded = conversion.measures(column, measure)
    is_rounded = [False] * len(numbers) if rounded is None else rounded.tolist()
    for row, number in enumerate(numbers):
        expected = 0 if number is None else half_even(number, scale)
        if INT64_MIN <= expected <= INT64_MAX:
            assert (values[row], row in faults) == (expected, False)
            assert is_rounded[row] == (number is not None and Fraction(number) * 10**scale != expected)
        else:
            assert row in faults


def test_binary_floating_point_is_rounded_by_its_shortest_decimal_text():
    """In binary 1.005 is a little less, and 2.675 too; their texts are halves."""
    values, _, rounded = conversion.measures(pa.array([1.005, 2.675, 0.1]), Measure(scale=2, round="half_even"))
    assert (values.tolist(), rounded.tolist()) == ([100, 268, 10], [True, True, False])


def test_what_does_not_fit_18_digits_is_no_event():
    values, faults = measures(text("9.223372036854775807", "-9.223372036854775808", "9.3", "10"), 18)
    assert values.tolist() == [INT64_MAX, INT64_MIN, 0, 0]
    assert faults == {
        2: "9.3 is too large: at scale 18 a measure holds up to 9.223372036854775807",
        3: "10 is too large: at scale 18 a measure holds up to 9.223372036854775807",
    }


# Attributes


@pytest.mark.parametrize(
    ("array", "values", "faults"),
    [
        (text("5", "-7", "+3", "1.0", "1e2", None), [5, -7, 3, 1, 100, None], {}),
        (text(str(INT64_MAX), str(INT64_MIN)), [INT64_MAX, INT64_MIN], {}),
        (text(str(INT64_MAX + 1), "1"), [None, 1], {0: "'9223372036854775808' is not a 64-bit integer"}),
        (text("1.5", "1"), [None, 1], {0: "'1.5' is not a 64-bit integer"}),
        (text("1e9999", "1"), [None, 1], {0: "'1e9999' is not a 64-bit integer"}),
        (text("9" * 60, "1"), [None, 1], {0: "'999999999999999999999999999999999999999… is not a 64-bit integer"}),
        (text("0x1F", "٣", "1_0", "", "x"), [None] * 5, {
            0: "'0x1F' is not a decimal number",
            1: "'٣' is not a decimal number",
            2: "'1_0' is not a decimal number",
            3: "'' is not a decimal number",
            4: "'x' is not a decimal number",
        }),
        (pa.array([2**64 - 1, 1], pa.uint64()), [None, 1], {0: "'18446744073709551615' is not a 64-bit integer"}),
        (pa.array([1, None], pa.int32()), [1, None], {}),
        (pa.array([1.0, 1.5]), [1, None], {1: NO_WHOLE.format("1.5")}),
        (pa.array([Decimal("7.00")]), [7], {}),
    ],
)  # fmt: skip
def test_longs_are_read_from_text_and_types(array, values, faults):
    found, found_faults = conversion.attributes(array, "long")
    assert found.type == pa.int64()
    assert (found.to_pylist(), found_faults) == (values, faults)


@settings(max_examples=examples(300))
@given(NUMBER_TEXTS.filter(lambda value: value is not None))
def test_the_short_way_reads_longs_as_the_long_way_does(value):
    """A row that is no plain integer sends its whole column the long way."""
    short, short_faults = conversion.attributes(text(value), "long")
    long, long_faults = conversion.attributes(text(value, "0" * 40), "long")
    assert (short.to_pylist()[0], short_faults) == (long.to_pylist()[0], long_faults)


def test_booleans_are_true_and_false_in_any_case_and_nothing_else():
    found, faults = conversion.attributes(text("true", "FALSE", "1", "yes", "", None), "boolean")
    assert found.to_pylist() == [True, False, None, None, None, None]
    assert faults == {row: f"{given!r} is neither true nor false" for row, given in ((2, "1"), (3, "yes"), (4, ""))}
    assert conversion.attributes(pa.array([True, None]), "boolean")[0].to_pylist() == [True, None]


@pytest.mark.parametrize("kind", ["string", "long"])
@pytest.mark.parametrize(
    ("array", "numbers", "faults"),
    [
        (pa.array([4000000000000002.0, None, -0.0, -12.0]), [4000000000000002, None, 0, -12], {}),
        (pa.array([2.0**53 - 1, -(2.0**53) + 1]), [2**53 - 1, -(2**53) + 1], {}),
        (
            pa.array([2.0**53, -1e300, 0.5]),
            [None, None, None],
            {
                0: TOO_LARGE.format("9007199254740992.0", 2**53),
                1: TOO_LARGE.format("-1e+300", 2**53),
                2: NO_WHOLE.format("0.5"),
            },
        ),
        (
            pa.array([float("nan"), float("inf"), -float("inf"), 5.0]),
            [None, None, None, 5],
            {row: NO_WHOLE.format(value) for row, value in enumerate(["nan", "inf", "-inf"])},
        ),
        (pa.array([16777215, 16777216], pa.float32()), [16777215, None], {1: TOO_LARGE.format("16777216.0", 2**24)}),
        (pa.array(np.array([2047, 2048], np.float16)), [2047, None], {1: TOO_LARGE.format("2048.0", 2**11)}),
        (pa.array([None, None], pa.float64()), [None, None], {}),
    ],
)
def test_floating_point_is_the_whole_number_that_it_surely_is(array, numbers, faults, kind):
    found, found_faults = conversion.attributes(array, kind)
    texts = [None if number is None else str(number) for number in numbers]
    assert (found.to_pylist(), found_faults) == (texts if kind == "string" else numbers, faults)


@given(st.lists(st.none() | st.integers(-(2**53) + 1, 2**53 - 1)))
def test_an_integer_and_a_double_of_one_number_are_one_text(numbers):
    columns = (pa.array(numbers, kind) for kind in (pa.int64(), pa.float64()))
    whole, floating = (conversion.attributes(column, "string") for column in columns)
    assert whole == floating


def test_elements_of_arrays_are_texts_of_whole_numbers():
    lists = pa.array([[1.0, None], [2.0, 0.5], None], pa.list_(pa.float64()))
    values, faults = conversion.arrays(lists, "string")
    assert values.to_pylist() == [["1", None], ["2", None], None]
    assert faults == {1: f"element 2: {NO_WHOLE.format('0.5')}"}


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (text("a", "", None, "é\x00"), ["a", "", None, "é\x00"]),
        (pa.array([5, None]), ["5", None]),
        (pa.array([True]), ["true"]),
        (pa.array([Decimal("1.50")]), ["1.50"]),
        (pa.array([Decimal("1e-8"), None, Decimal("0.00")]), ["0.00000001", None, "0.00000000"]),
        (pa.array(["x"], pa.large_string()), ["x"]),
        (pa.array(["x", "x"]).dictionary_encode(), ["x", "x"]),
    ],
)
def test_strings_take_any_value_as_its_text(array, values):
    found, faults = conversion.attributes(array, "string")
    assert found.type == pa.string()
    assert (found.to_pylist(), faults) == (values, {})


# Times


@pytest.mark.parametrize(
    ("array", "declared", "expected"),
    [
        (text("1700000000123"), IN_MS, 1_700_000_000_123),
        (text("-1"), IN_MS, -1),
        (text("1700000000123.9"), IN_MS, 1_700_000_000_123),
        (text("-0.5"), IN_MS, -1),
        (text("1.7e12"), IN_MS, 1_700_000_000_000),
        (text("1700000000"), IN_S, 1_700_000_000_000),
        (text("1700000000.0019"), IN_S, 1_700_000_000_001),
        (text("-1.0001"), IN_S, -1001),
        (text("1700000000.0009" + "9" * 28), IN_S, 1_700_000_000_000),
        (text("-1700000000.0009" + "9" * 28), IN_S, -1_700_000_000_001),
        (text("1700000000123." + "9" * 5000), IN_MS, 1_700_000_000_123),
        (text("17" + "0" * 5000 + "e-4992"), IN_S, 1_700_000_000_000),
        (text("-1e-5000"), IN_S, -1),
        (pa.array([1_700_000_000_123]), IN_MS, 1_700_000_000_123),
        (pa.array([1_700_000_000]), IN_S, 1_700_000_000_000),
        (pa.array([-5], pa.int32()), IN_S, -5000),
        (pa.array([1_700_000_000.25]), IN_S, 1_700_000_000_250),
        (pa.array([Decimal("1700000000.25")]), IN_S, 1_700_000_000_250),
        (text("2023-11-14T22:13:20Z"), ISO, 1_700_000_000_000),
        (text("2023-11-14T22:13:20.123456Z"), ISO, 1_700_000_000_123),
        (text("2023-11-14T22:13:20.123456789Z"), ISO, 1_700_000_000_123),
        (text("2023-11-15T00:13:20+02:00"), ISO, 1_700_000_000_000),
        (text("2023-11-14 22:13:20"), ISO, 1_700_000_000_000),
        (text("2023-11-14"), ISO, 1_699_920_000_000),
        (text("1969-12-31T23:59:59.9995Z"), ISO, -1),
        (text("1969-12-31T23:59:59.9985"), ISO, -2),
        (
            pa.array([datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            IN_MS,
            1_700_000_000_000,
        ),
        (pa.array([-1], pa.timestamp("us", "UTC")), ISO, -1),
        (pa.array([-1001], pa.timestamp("us")), IN_S, -2),
        (pa.array([1_700_000_000], pa.timestamp("s", "UTC")), IN_MS, 1_700_000_000_000),
    ],
)
def test_a_time_is_cut_down_to_its_millisecond(array, declared, expected):
    times, faults = conversion.times_ms(array, declared)
    assert (times.tolist(), faults) == ([expected], {})


@pytest.mark.parametrize(
    ("written", "declared", "reason"),
    [
        ("", IN_MS, "'' is not a decimal number"),
        ("now", IN_MS, "'now' is not a decimal number"),
        ("NaN", IN_S, "'NaN' is not a decimal number"),
        ("0x1F", IN_MS, "'0x1F' is not a decimal number"),
        ("1e25", IN_MS, "'1e25' is not a time"),
        ("1e9999", IN_S, "'1e9999' is not a time"),
        (
            "2023-11-14T22:13:20Z",
            IN_MS,
            "'2023-11-14T22:13:20Z' is not a decimal number; it is a time in ISO 8601: write `unit: iso8601`",
        ),
        (
            "1700000000000",
            ISO,
            "'1700000000000' is not an ISO-8601 time; with `unit: ms` it is 2023-11-14 22:13:20",
        ),
        ("2023-02-30", ISO, "'2023-02-30' is not an ISO-8601 time"),
        ("yesterday", ISO, "'yesterday' is not an ISO-8601 time"),
        (
            "1700000000000",
            IN_S,
            "'1700000000000' is an absurd time: outside 1900-01-01 to 2200-01-01; with `unit: ms` it is "
            "2023-11-14 22:13:20",
        ),
        ("-9223372036854775808", IN_MS, "'-9223372036854775808' is an absurd time: outside 1900-01-01 to 2200-01-01"),
        ("7258118400000", IN_MS, "'7258118400000' is an absurd time: outside 1900-01-01 to 2200-01-01"),
        ("99999999999999999999", IN_MS, "'99999999999999999999' is an absurd time: outside 1900-01-01 to 2200-01-01"),
        ("0001-01-01T00:00:00Z", ISO, "'0001-01-01T00:00:00Z' is an absurd time: outside 1900-01-01 to 2200-01-01"),
    ],
)
def test_a_time_that_does_not_fit_is_named_and_harms_no_other_row(written, declared, reason):
    good = "2000-01-01T00:00:00Z" if declared is ISO else "1"
    times, faults = conversion.times_ms(text(good, written, None), declared)
    assert faults == {1: reason}
    assert times[0] == {IN_MS: 1, IN_S: 1000, ISO: 946_684_800_000}[declared]


def test_the_first_and_the_last_sane_millisecond_fit():
    first, end = IN_MS.earliest_ms, IN_MS.latest_ms
    times, faults = conversion.times_ms(pa.array([first - 1, first, end - 1, end]), IN_MS)
    assert times[1:3].tolist() == [first, end - 1]
    assert sorted(faults) == [0, 3]


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 5, 7, 9, 11, 999])
def test_limits_are_taken_to_the_millisecond(milliseconds):
    limit = datetime(1970, 1, 1, 0, 0, 1, milliseconds * 1000, UTC)
    exact = (limit - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    declared = EventTime(field="t", earliest=limit, latest=limit + timedelta(milliseconds=1))
    assert (declared.earliest_ms, declared.latest_ms) == (exact, exact + 1)
    times, faults = conversion.times_ms(pa.array([exact - 1, exact, exact + 1]), declared)
    assert (times[1], sorted(faults)) == (exact, [0, 2])


def test_a_limit_between_two_milliseconds_is_not_moved():
    limit = datetime(2033, 3, 3, 0, 0, 0, 1500, UTC)
    declared = EventTime(field="t", earliest=limit, latest=limit + timedelta(milliseconds=1))
    second = datetime(2033, 3, 3, tzinfo=UTC).timestamp() * 1000
    assert (declared.earliest_ms, declared.latest_ms) == (second + 2, second + 3)


@pytest.mark.parametrize("declared", [IN_MS, IN_S, ISO])
def test_null_times_are_no_faults_of_the_column_even_where_0_is_absurd(declared):
    later = declared.model_copy(update={"earliest": datetime(2000, 1, 1, tzinfo=UTC)})
    assert conversion.times_ms(text(None, None), later)[1] == {}


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.one_of(
            NUMBER_TEXTS,
            st.integers(-(10**13), 10**13).map(str),
            st.decimals(-(10**10), 10**10, places=4).map(lambda value: format(value, "f")),
        ),
        max_size=5,
    ),
    st.sampled_from([IN_MS, IN_S]),
)
def test_times_in_text_do_not_depend_on_the_other_rows(values, declared):
    def convert(array):
        return conversion.times_ms(array, declared)

    assert whole(values, pa.string(), convert) == alone(values, pa.string(), convert)


ISO_TEXTS = st.one_of(
    st.datetimes(new_year(1900), new_year(2199)).map(lambda moment: moment.isoformat() + "Z"),
    st.datetimes(new_year(1901), new_year(2199)).map(lambda moment: moment.isoformat(" ")),
    st.builds(
        lambda moment, sign, offset, form: f"{moment.isoformat()}{sign}{form.format(h=offset // 60, m=offset % 60)}",
        st.datetimes(new_year(1901), new_year(2199)),
        st.sampled_from("+-"),
        st.integers(0, 26 * 60),
        st.sampled_from(["{h:02}:{m:02}", "{h:02}{m:02}", "{h:02}"]),
    ),
    st.sampled_from(
        ["2023-11-14T22:13Z", "2023-11-14T22Z", "20231114T221320Z", "2023-W46-2", "2023-11-14T24:00:00Z", "2023-11-14Z",
         "2023-11-14T22:13:60Z", "2023-11-14t22:13:20z", "2023-11-14T22:13:20,5Z", "2023-11-14T22:13:20.Z",
         "2023-11-14T22:13:20 Z", " 2023-11-14T22:13:20Z", "+2023-11-14T22:13:20Z", "2023-1-1", "",
         "0000-01-01T00:00:00Z"]
    ),
)  # fmt: skip


@settings(max_examples=examples(300))
@given(ISO_TEXTS)
def test_the_short_way_reads_iso_times_as_the_long_way_does(value):
    """A row that is no time sends its whole column the long way."""
    short, short_faults = conversion.times_ms(text(value), ISO)
    long, long_faults = conversion.times_ms(text(value, "no time"), ISO)
    assert (short[0], short_faults.get(0)) == (long[0], long_faults.get(0))


@given(st.datetimes(new_year(1902), new_year(2198)), st.integers(-14 * 60, 14 * 60))
def test_an_iso_time_with_an_offset_is_the_moment_it_names(moment, minutes):
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    written = f"{moment.isoformat()}{sign}{size // 60:02}:{size % 60:02}"
    since = moment - timedelta(minutes=minutes) - new_year(1970)
    times, faults = conversion.times_ms(text(written), ISO)
    assert (times.tolist(), faults) == ([since // timedelta(milliseconds=1)], {})


@given(st.integers(-(2**40), 2**41), st.sampled_from(["s", "ms", "us"]))
def test_a_timestamp_is_the_moment_it_names_whatever_unit_is_declared(count, unit):
    per_ms = {"s": 1000, "ms": 1, "us": 1}[unit]
    expected = count // 1000 if unit == "us" else count * per_ms
    if unit == "s":
        count, expected = count // 10**4, count // 10**4 * 1000
    array = pa.array([count], pa.timestamp(unit, "UTC"))
    for declared in (IN_MS, IN_S, ISO):
        wide = WIDE.model_copy(update={"unit": declared.unit})
        assert conversion.times_ms(array, wide)[0].tolist() == [expected]


def test_a_null_in_the_middle_of_a_sliced_column_stays_where_it_is():
    array = pa.array(["1", "2", None, "4"])[1:]
    assert measures(array, 0)[0].tolist() == [2, 0, 4]
    assert conversion.attributes(array, "long")[0].to_pylist() == [2, None, 4]
    assert conversion.times_ms(array, IN_S)[0].tolist() == [2000, 0, 4000]


def test_an_integer_is_no_iso_time():
    _, faults = conversion.times_ms(pa.array([1_700_000_000_000]), ISO)
    assert faults == {0: "'1700000000000' is not an ISO-8601 time; with `unit: ms` it is 2023-11-14 22:13:20"}


def test_the_least_integer_of_seconds_is_absurd():
    _, faults = conversion.times_ms(pa.array([INT64_MIN]), IN_S)
    assert list(faults) == [0]


def test_a_timestamp_in_nanoseconds_is_cut_down_to_its_millisecond():
    array = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC"))
    times, faults = conversion.times_ms(array, IN_MS)
    assert (times.tolist(), faults) == ([1_700_000_000_123], {})


@pytest.mark.parametrize(
    "convert",
    [
        lambda: measures(pa.array([[1]]), 2),
        lambda: conversion.attributes(pa.array([{"a": 1}]), "string"),
        lambda: conversion.times_ms(pa.array([1.5]), ISO),
        lambda: conversion.times_ms(pa.array([True]), ISO),
    ],
)
def test_a_column_of_a_type_that_cannot_be_read_makes_faults(convert):
    _, faults = convert()
    assert list(faults) == [0]


def test_bytes_that_are_no_text_are_named_and_harm_no_other_row():
    values, faults = conversion.attributes(pa.array([b"\xff", b"x"]), "string")
    assert list(faults) == [0]
    assert values.to_pylist()[1] == "x"


def test_floats_of_single_precision_are_not_widened():
    single = struct.unpack("f", struct.pack("f", 0.3))[0]
    assert measures(pa.array([single], pa.float32()), 1)[0].tolist() == [3]
