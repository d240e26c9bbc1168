"""Bad rows are counted by reason, whatever values these name, with the first of each; and too many are an error."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.events.arrivals import RAW, SOURCE, SOURCE_ORDER, parse
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.events.source_files import line_reader

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": {"field": "t", "latest": "2030-01-01T00:00:00Z"},
        "attributes": {"payer": "string", "age": "long", "vip": "boolean"},
        "measures": {"amount": {"scale": 2}},
    }
)
FAULTS = {
    "id": ['""', "null", "[]", '"\\ud800"'],
    "t": ['"soon, it is said"', '"never has"', "99999999999999", "null"],
    "payer": ["true", "{}"],
    "age": ["1.5", '"x is y"', '"O\'Brien"', '"a: b"'],
    "vip": ["3", '"maybe"'],
    "amount": ["1.234", "1e-9", '"1,5"', '"12345678901234567890"', '"is \\"quoted\\""'],
}
BROKEN = [b"\xff\xfe", b"{", b"nothing", b'{"id": 1} 2', b"[]", b"{} {}"]


def line(number, field, value):
    written = {"id": f'"e{number}"', "t": "1700000000000", "payer": '"p"', "age": "3", "vip": "true", "amount": "1"}
    texts = ", ".join(f'"{name}": {text}' for name, text in (written | {field: value}).items())
    return f"{{{texts}}}".encode()


def bad_rows(lines):
    bad = BadRows()
    names, order = (pa.repeat(pa.scalar(value), len(lines)) for value in ("day.jsonl", 0))
    of_file = pa.record_batch({SOURCE: names, SOURCE_ORDER: order, RAW: pa.array(lines, pa.binary())})
    for rows in line_reader("json", SCHEMA, None)([of_file]):
        _, dead = parse(rows, SCHEMA, frozenset())
        bad.take(rows.num_rows, len(dead), ((each.source, each.position, each.reason) for each in dead))
    return bad


@given(
    st.lists(
        st.sampled_from(["good", *FAULTS, "broken"]).flatmap(
            lambda field: st.tuples(st.just(field), st.sampled_from(FAULTS.get(field, ["x"])), st.sampled_from(BROKEN))
        ),
        min_size=1,
    )
)
def test_every_bad_row_is_counted_under_one_reason_with_its_first_line(drawn):
    lines = [
        broken
        if field == "broken"
        else line(number, "payer" if field == "good" else field, '"p"' if field == "good" else value)
        for number, (field, value, broken) in enumerate(drawn)
    ]
    bad, wrong = bad_rows(lines), [number for number, (field, _, _) in enumerate(drawn, 1) if field != "good"]
    assert (bad.rows, bad.unread, bad.bad) == (len(lines), len(wrong), len(wrong))
    assert sum(each.rows for each in bad.reasons) == len(wrong)
    assert {each.position for each in bad.reasons} <= set(wrong)
    assert [each.rows for each in bad.reasons] == sorted((each.rows for each in bad.reasons), reverse=True)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("amount", ["1.234", "2.3456", "0.001"]),
        ("amount", ['"a"', '"b is c"', '"it\'s"', '"' + "x" * 90 + '"']),
        ("age", ["1.5", "2.25"]),
        ("t", ["99999999999999", "99999999999998"]),
        ("id", ["null", "null"]),
    ],
)
def test_rows_that_differ_in_the_value_alone_have_one_reason(field, values, as_worded):
    bad = bad_rows([line(number, field, value) for number, value in enumerate(values)])
    assert [(each.rows, each.position) for each in bad.reasons] == [(len(values), 1)]
    assert as_worded(bad.reasons[0].reason)


def test_lines_that_are_not_utf_8_are_counted_and_named(as_worded):
    lines = [line(number, "payer", '"p"') for number in range(3)] + [b"\xff\xfe", b'{"id": "\xe9"}']
    bad = bad_rows(lines)
    assert as_worded(bad.text)
    bad.check("--events day.jsonl")


def test_less_than_half_that_can_be_read_is_an_error_and_half_is_none(as_worded):
    good, wrong = line(1, "payer", '"p"'), line(2, "amount", '"a\\u001bb"')
    bad_rows([good, wrong]).check("--events day.jsonl")
    with pytest.raises(BucketsError, check=as_worded):
        bad_rows([good, wrong, wrong]).check("--events day.jsonl")


def test_many_reasons_are_not_all_shown(as_worded):
    lines = [line(0, field, values[0]) for field, values in FAULTS.items()]
    assert as_worded(bad_rows(lines).text)
