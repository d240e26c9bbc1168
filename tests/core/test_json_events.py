"""Texts of JSON into columns of text: digits as they were written, and nothing taken that is not exactly one object."""

import pyarrow as pa
import pytest

from buckets.events.arrivals import BROKEN, RAW, field_column
from buckets.events.json_events import read_events
from tests.core.examples import SCHEMA

EVENT = '{"id": "e", "at": 1, "payer": "p", "amount": "1.50"}'


def columns(*texts: str) -> dict[str, list[str | None]]:
    """What was read: a list for each declared field, and one of reasons."""
    rows = pa.record_batch({RAW: pa.array(texts, pa.string()), BROKEN: pa.nulls(len(texts), pa.string())})
    read = read_events(rows, SCHEMA)
    fields = {name: read.column(field_column(index)).to_pylist() for index, name in enumerate(SCHEMA.field_names)}
    return fields | {BROKEN: read.column(BROKEN).to_pylist()}


@pytest.mark.parametrize(
    "written",
    ["0", "7", "-7", "1e2", "1.50E+3", "0.1e-5", "-0.0", "1.10", "12345678901234567.89", "100.000000000000000001",
     "10000000000000001", "9" * 30, "9" * 4300, "9" * 4301, "1." + "0" * 5000],
)  # fmt: skip
@pytest.mark.parametrize("others", [[], ["1"], ['"x"', "null"], ["1e5"]])
def test_a_number_keeps_the_digits_that_were_written_whatever_stands_in_other_rows(written, others):
    found = columns(*(EVENT.replace('"e"', value) for value in [written, *others]))
    assert (found["id"][0], found[BROKEN][0]) == (written, None)


def test_minus_nothing_is_nothing_on_both_ways():
    plain = EVENT.replace('"1.50"', "-0")
    found = columns(plain, plain.replace("amount", "\\u0061mount"))
    assert found["amount"] == ["0", "0"]


def test_names_are_told_apart_by_case_and_the_rest_is_not_asked_for():
    found = columns('{"ID": 1, "id": "e", "Id": [{}], "at": null, "more": {"id": "x"}}')
    assert (found["id"], found["at"], found["payer"], found[BROKEN]) == (["e"], [None], [None], [None])


@pytest.mark.parametrize("name", ["id", "at", "amount", "vip"])
@pytest.mark.parametrize("second", ["null", '"1"', "1"])
def test_a_field_that_is_given_twice_is_found_among_others(name, second):
    """A name in disguise in another row has one occurrence less, which must not make up for one too many."""
    disguised = EVENT.replace('"id"', '"\\u0069d"').replace('"at"', '"\\u0061t"').replace('"amount"', '"\\u0061mount"')
    twice = f'{EVENT[:-1]}, "vip": true, "{name}": {second}}}'
    found = columns(EVENT, disguised, twice if name != "vip" else twice[:-1] + ', "vip": null}', "broken", EVENT)
    assert found["id"] == ["e", "e", None, None, "e"]
    assert found[BROKEN][2] in (f"{name}: is given twice", "vip: is given twice")


def test_there_may_be_no_rows():
    assert columns() == {name: [] for name in [*SCHEMA.field_names, BROKEN]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "broken JSON: Expecting value at character 1"),
        ("[1]", "is a list, and must be an object"),
        (" 1", "is one value, and must be an object"),
        ("null", "is null, and must be an object"),
        (EVENT + " " + EVENT, "broken JSON: there is more after the first value, at character 54"),
        (EVENT.replace('"1.50"', "NaN"), "broken JSON: NaN is not a number in JSON"),
        (EVENT.replace('"1.50"', "01"), "broken JSON: Expecting ',' delimiter at character 47"),
        ("\ufeff\ufeff" + EVENT, "broken JSON: Expecting value at character 1"),
        ("[" * 501, "broken JSON: nested deeper than 500 levels"),
    ],
)
def test_what_is_not_exactly_one_object_is_named(text, reason):
    assert columns(text, EVENT)[BROKEN] == [reason, None]
