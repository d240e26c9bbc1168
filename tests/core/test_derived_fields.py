"""Derived fields: typed once, computed when events are read, and then fields as others are."""

import json
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import buckets
from buckets.archive.archive import by_batch
from buckets.archive.arrived_rows import arrivals_of
from buckets.events.arrivals import convert, parse
from buckets.events.schema import EventSchema
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.outputs.columns import ALERTS
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rules.rule import Rule
from buckets.validation import first_fault
from tests.core.archived_job import ArchivedJob, archived
from tests.core.checkpoints import basis
from tests.core.pipeline import arrivals
from tests.laws import examples

PLAIN = {
    "event_id": "id",
    "event_time": "at",
    "attributes": {"pan": "string", "email": "string", "n": "long", "vip": "boolean"},
    "measures": {"amount": {"scale": 2}, "rate": {"scale": 3}},
    "arrays": {"tags[]": "string"},
}
DERIVE = {
    "bin3": "substring(bin, 1, 3)",
    "bin": "substring(pan, 1, 6)",
    "mail": "lower(split_part(email, '@', -1))",
    "eur": "round(amount * rate, 2)",
    "double": "n * 2",
    "night": "hour(at AT TIME ZONE 'Europe/Berlin') < 6 OR vip",
    "tags": "array_size(tags[])",
}
SCHEMA = EventSchema.model_validate(PLAIN | {"derive": DERIVE})
MATERIAL = EventSchema.model_validate(
    PLAIN
    | {
        "attributes": PLAIN["attributes"]
        | {"bin3": "string", "bin": "string", "mail": "string", "double": "long", "night": "boolean", "tags": "long"},
        "measures": PLAIN["measures"] | {"eur": {"scale": 2}},
    }
)
START_MS = 1_700_000_000_000


def test_the_type_of_a_field_follows_from_its_expression():
    assert (SCHEMA.attributes, SCHEMA.measures) == (MATERIAL.attributes, MATERIAL.measures)
    assert list(SCHEMA.derive) == ["bin", "bin3", "mail", "eur", "double", "night", "tags"]
    assert SCHEMA.field_names == ["id", "at", "pan", "email", "n", "vip", "amount", "rate", "tags[]"]
    assert SCHEMA.all_fields == MATERIAL.field_names or set(SCHEMA.all_fields) == set(MATERIAL.field_names)


def test_a_schema_is_written_as_it_was_read():
    written = SCHEMA.model_dump(mode="json")
    assert written["attributes"] == PLAIN["attributes"]
    assert written["measures"] == PLAIN["measures"]
    assert EventSchema.model_validate(written) == EventSchema.model_validate_json(SCHEMA.model_dump_json()) == SCHEMA
    shuffled = PLAIN | {"derive": dict(reversed(DERIVE.items()))}
    assert EventSchema.model_validate(shuffled).roles == SCHEMA.roles


@pytest.mark.parametrize(
    "derive",
    [
        {"bin": "substring(pan)"},
        {"pan": "email"},
        {"at": "email"},
        {"a": "b", "b": "lower(a)"},
        {"a": "a || 'x'"},
        {"a": "sqrt(amount)"},
        {"a": "amount * amount * amount * amount * amount * amount * amount * amount"},
        {"a": "at"},
        {"a": "tags[]"},
        {"a": "pan IN LIST cards"},
        {"a": "lookup(cards, pan, 'kind')"},
        {"a": "Pan"},
        {"a": "NULL"},
        {"a": "pan REGEXP '('"},
        {"a[]": "pan"},
        {"a": 5},
        {"a": "x" * 10_001},
    ],
)
def test_what_cannot_be_a_field_is_refused_in_one_line(derive, as_worded):
    with pytest.raises(ValidationError) as caught:
        EventSchema.model_validate(PLAIN | {"derive": derive})
    location, text = first_fault(caught.value, (), EventSchema)
    assert location[0] == "derive"
    assert "\n" not in text
    assert as_worded(text)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "pan": st.none() | st.sampled_from(["4123456789", "4123450000", "5", ""]),
            "email": st.none() | st.sampled_from(["A@X.org", "b@x.ORG", "none", "@"]),
            "n": st.none() | st.integers(-3, 3),
            "vip": st.none() | st.booleans(),
            "amount": st.none() | st.integers(-500, 500).map(lambda cents: str(Decimal(cents).scaleb(-2))),
            "rate": st.none() | st.integers(0, 3000).map(lambda mills: str(Decimal(mills).scaleb(-3))),
            "tags": st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=3),
            "at": st.integers(0, 20).map(lambda hour: START_MS + hour * 1_800_000),
        }
    ),
    min_size=1,
    max_size=12,
)


def of_plain_python(row: dict) -> dict:
    """What is derived of a row, in plain Python."""
    pan, email, n, amount, rate = (row[name] for name in ("pan", "email", "n", "amount", "rate"))
    eur = None if amount is None or rate is None else Fraction(amount) * Fraction(rate)
    cents = None if eur is None else (1 if eur > 0 else -1) * int(abs(eur) * 100 + Fraction(1, 2))
    in_berlin = (row["at"] // 3_600_000 + 1) % 24  # in November
    night = True if in_berlin < 6 else row["vip"]
    return {
        "bin": pan and pan[:6],
        "bin3": pan and pan[:3],
        "mail": email and email.rpartition("@")[2].lower(),
        "eur": None if cents is None else str(Decimal(cents).scaleb(-2)),
        "double": None if n is None else 2 * n,
        "night": night if night else (None if night is None else False),
        "tags": None if row["tags"] is None else len(row["tags"]),
    }


def table(rows: list[dict], with_derived: bool) -> pa.Table:
    events = [
        {"id": f"e{at}"} | {("tags[]" if k == "tags" else k): v for k, v in row.items()} for at, row in enumerate(rows)
    ]
    if with_derived:
        events = [event | of_plain_python(row) for event, row in zip(events, rows, strict=True)]
    kinds = {"n": pa.int64(), "double": pa.int64(), "tags": pa.int64(), "at": pa.int64()}
    kinds |= {"vip": pa.bool_(), "night": pa.bool_(), "tags[]": pa.list_(pa.string())}
    return pa.table({k: pa.array([e[k] for e in events], kinds.get(k, pa.string())) for k in events[0]})


RULES = [
    {
        "rule_id": "bins",
        "group_by": ["bin"],
        "where": "mail <> 'none' OR night",
        "features": {
            "euros": {"function": "sum", "of": "eur", "window": "2h"},
            "people": {"function": "count_distinct", "of": "mail", "window": "4h"},
            "most": {"function": "max", "of": "double", "window": "4h"},
        },
        "when": "euros > 1 OR people >= 2 OR most > 2 OR bin3 = '5' AND tags > 1",
    },
    {
        "rule_id": "short",
        "group_by": ["mail", "night"],
        "aggregate": {"function": "sum", "measure": "eur"},
        "window": {"length": "3h"},
        "limit": {"operator": ">", "value": "0.5"},
    },
]


@settings(max_examples=examples(60))
@given(ROWS)
def test_rules_see_a_derived_field_as_if_events_had_it(rows):
    rules = [Rule.model_validate(rule) for rule in RULES]
    derived = buckets.evaluate(table(rows, with_derived=False), rules, SCHEMA)
    given_ = buckets.evaluate(table(rows, with_derived=True), rules, MATERIAL)
    for name, found in derived.tables.items():
        expected = given_.tables[name].to_pylist()
        assert without_order(found.to_pylist()) == without_order(expected), name


def without_order(rows: list[dict]) -> list[dict]:
    """Fields of dead letters, as their text, lack what is derived."""
    return [{name: value for name, value in row.items() if name != "raw"} for row in rows]


def test_what_does_not_fit_is_a_dead_letter_with_its_reason(as_worded):
    rows = [
        {"id": "a", "at": START_MS, "n": str(2**62), "amount": "1", "rate": "1"},
        {"id": "b", "at": START_MS, "n": "1", "amount": "90000000000000000", "rate": "9000000000"},
        {"id": "c", "at": START_MS, "n": "x", "amount": "1"},
        {"id": "d", "at": START_MS, "amount": "1", "rate": "2"},
    ]
    events, letters = parse(arrivals(rows, SCHEMA), SCHEMA, frozenset(["bin"]))
    assert [letter.reason for letter in letters if letter.position == 4] == ["bin: is missing or null"]
    assert len(events) == 0
    events, letters = parse(arrivals(rows, SCHEMA), SCHEMA, frozenset())
    assert as_worded("\n".join(f"{letter.position}: {letter.reason}" for letter in letters))
    assert events.event_id.to_pylist() == ["d"]
    assert events.measures["eur"].to_pylist() == [200]


def test_the_archive_has_what_was_derived_and_nothing_is_computed_twice():
    rows = [{"id": "a", "at": START_MS, "pan": "41234567", "amount": "1.00", "rate": "2.5"}]
    table_, there = (
        archived(arrivals(rows, SCHEMA), SCHEMA, 7),
        {"bin": "412345", "bin3": "412", "eur": Decimal("2.50")},
    )
    assert table_.select(list(there)).to_pylist() == [there]
    (back,) = arrivals_of(table_, SCHEMA)
    assert archived(back, SCHEMA, 7).equals(table_)
    other = EventSchema.model_validate(PLAIN | {"derive": DERIVE | {"bin": "upper('other')"}})
    (back,) = arrivals_of(table_, other)
    assert convert(back, other, frozenset()).every.attributes["bin"].to_pylist() == ["412345"]
    (back,) = arrivals_of(table_.drop_columns(["bin", "eur"]), SCHEMA)
    events = convert(back, SCHEMA, frozenset()).every
    assert (events.attributes["bin"].to_pylist(), events.measures["eur"].to_pylist()) == ([None], [None])
    assert events.attributes["bin3"].to_pylist() == ["412"]


def test_archived_events_score_as_they_did(tmp_path):
    rows = [
        {"id": f"e{at}", "at": START_MS + at * 60_000, "pan": f"41234{at % 2}", "amount": f"{at}.5", "rate": "1.1"}
        for at in range(12)
    ]
    rule = RULES[1] | {"group_by": ["bin"]}
    job = ArchivedJob(tmp_path, SCHEMA, shards=2)
    job.take([Rule.model_validate(rule)])
    job.batch(rows[:5])
    job.batch(rows[5:])
    recorded, version = job.recorded, {cut.batch_id: cut.ruleset_version for cut in job.recorded.cuts}
    pieces = [
        ArchivePiece(rows, recorded.rule_set(version[number]), recorded.terms(number))
        for number, rows in by_batch(job.archive.tables())
    ]
    again = [row for scored in score_pieces(pieces, "evaluations") for row in scored.table(ALERTS).to_pylist()]
    expected = job.pipeline.output(ALERTS)
    assert sorted((row["alert_id"], row["value"]) for row in again) == sorted(
        (row["alert_id"], row["value"]) for row in expected
    )
    assert len(expected) > 5
    assert json.loads(expected[0]["key"])["bin"] == "412340" or json.loads(expected[0]["key"])["bin"] == "412341"


def test_a_field_that_is_derived_otherwise_does_not_fit_a_checkpoint_and_a_new_one_is_said(checkpoint, as_worded):
    before = EventSchema.model_validate(PLAIN | {"derive": {"bin": "substring(pan,1,6)"}})
    checkpoint.job.open(basis(schema=before))
    written = basis(schema=before).to_json()
    same = EventSchema.model_validate(PLAIN | {"derive": {"bin": "SUBSTRING(pan, 1, 6)"}})
    assert basis(schema=same).conflict(written) is None
    other = EventSchema.model_validate(PLAIN | {"derive": {"bin": "substring(pan, 1, 8)"}})
    assert as_worded(str(basis(schema=other).conflict(written)))
    assert as_worded(str(basis(schema=EventSchema.model_validate(PLAIN)).conflict(written)))
    more = EventSchema.model_validate(PLAIN | {"derive": {"bin": "substring(pan, 1, 6)", "mail": "lower(email)"}})
    assert basis(schema=more).conflict(written) is None
    assert as_worded(str(checkpoint.job.carried_over(basis(schema=more))))


def test_renamed_fields_are_followed_by_what_is_derived_from_them():
    plain = PLAIN | {"attributes": {"card": "string", "email": "string", "n": "long", "vip": "boolean"}}
    now = EventSchema.model_validate(plain | {"aliases": {"card": ["pan"]}, "derive": {"bin": "substring(card, 1, 6)"}})
    then = EventSchema.model_validate(PLAIN | {"derive": {"bin": "substring(pan, 1, 6)"}})
    assert basis(schema=now).conflict(basis(schema=then).to_json()) is None
    events, _ = parse(arrivals([{"id": "a", "at": START_MS, "card": "41234567"}], now), now, frozenset(["bin"]))
    assert events.attributes["bin"].to_pylist() == ["412345"]


def test_editors_know_derived_fields_in_rules_and_refuse_them_in_events():
    published = rule_file_schema(SCHEMA)["$defs"]
    assert "bin" in published["rule"]["properties"]["group_by"]["items"]["enum"]
    assert "eur" in published["feature"]["properties"]["of"]["anyOf"][0]["enum"]
    assert "bin" not in published["GivenEvent"]["propertyNames"]["enum"]


def test_features_of_events_by_a_derived_field():
    rows = [{"pan": f"41234{at % 2}9", "amount": "1.5", "rate": "2", "at": START_MS + at} for at in range(4)]
    lacking = {"email": None, "n": None, "vip": None, "tags": None}
    rule = Rule.model_validate(RULES[1] | {"group_by": ["bin"]})
    found = buckets.features(table([lacking | row for row in rows], with_derived=False), [rule], SCHEMA).to_pylist()
    assert [row["bin"] for row in found] == ["412340", "412341", "412340", "412341"]
    assert [value for name, value in found[0].items() if name.startswith("short")] == [Decimal("3.00"), True]
