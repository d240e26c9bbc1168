"""Keys as text: no two keys alike, and readable again."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.engine.storage.key import decode_key, encode_key, key_of_values, key_writer, shards_of
from buckets.rules.group import Group
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import SCHEMA, rule
from tests.laws import examples

FIELDS = ["payer", "kind", "account", "vip"]
TEXTS = st.one_of(st.text("\x00\x01\x02a", max_size=5), st.text(max_size=8))
VALUES = {
    "payer": TEXTS,
    "kind": TEXTS,
    "account": st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    "vip": st.booleans(),
}
ROWS = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=20)
GROUPINGS = st.lists(st.sampled_from(FIELDS), unique=True)


def group_by(*fields: str) -> Group:
    return first_rule_set([rule(group_by=list(fields))]).groups[0]


def keys_of(group: Group, rows) -> list[str]:
    kinds = {"payer": pa.string(), "kind": pa.string(), "account": pa.int64(), "vip": pa.bool_()}
    columns = {field: pa.array([row[field] for row in rows], kind) for field, kind in kinds.items()}
    texts = [pc.cast(columns[field], pa.string()).to_pylist() for field in group.key_fields]
    return [encode_key(of_field[row] for of_field in texts) for row in range(len(rows))]


@settings(max_examples=examples(300))
@given(GROUPINGS, ROWS)
def test_keys_are_equal_exactly_when_all_fields_are(fields, rows):
    keys = keys_of(group_by(*fields), rows)
    for key, row in zip(keys, rows, strict=True):
        for other_key, other in zip(keys, rows, strict=True):
            assert (key == other_key) == all(row[field] == other[field] for field in fields)


@settings(max_examples=examples(300))
@given(GROUPINGS, ROWS)
def test_decoding_a_key_gives_its_fields_back_in_the_order_of_the_rule(fields, rows):
    group = group_by(*fields)
    for key, row in zip(keys_of(group, rows), rows, strict=True):
        decoded = decode_key(group, key, SCHEMA)
        assert list(decoded.items()) == [(field, row[field]) for field in fields]
        assert [type(value) for value in decoded.values()] == [type(row[field]) for field in fields]


@given(st.permutations(FIELDS), ROWS)
def test_the_order_of_the_fields_does_not_matter(fields, rows):
    group, sorted_group = group_by(*fields), group_by(*FIELDS)
    assert group.group_id == sorted_group.group_id
    assert keys_of(group, rows) == keys_of(sorted_group, rows)


@settings(max_examples=examples(300))
@given(GROUPINGS, ROWS)
def test_a_key_made_of_its_values_as_text_is_the_key_of_the_event(fields, rows):
    group = group_by(*fields)
    for key, row in zip(keys_of(group, rows), rows, strict=True):
        texts = [str(row[field]).lower() if field == "vip" else str(row[field]) for field in fields]
        assert key_of_values(group, texts, SCHEMA) == key


@pytest.mark.parametrize(("fields", "values"), [((), 1), (("payer",), 0), (("payer", "kind"), 1), (("payer",), 2)])
def test_a_key_needs_a_value_for_each_field(fields, values, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        key_of_values(group_by(*fields), ["a"] * values, SCHEMA)


@given(GROUPINGS, ROWS)
def test_a_key_as_json_has_each_field_in_its_type(fields, rows):
    group, order = group_by(*fields), sorted(fields, reverse=True)
    in_order, as_rules_have_it = key_writer(group, SCHEMA, order), key_writer(group, SCHEMA)
    for key, row in zip(keys_of(group, rows), rows, strict=True):
        assert in_order(key) == json.dumps({name: row[name] for name in order}, ensure_ascii=False)
        assert as_rules_have_it(key) == json.dumps({name: row[name] for name in group.fields}, ensure_ascii=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a\x00b", "c"), ("a", "b\x00c")), (("\x01", "\x01\x01"), ("\x01\x01", "\x01")), (("", "\x00"), ("\x00", ""))],
)
def test_separators_inside_values_do_not_confuse_keys(one, other):
    rows = [{"payer": payer, "kind": kind, "account": 0, "vip": False} for payer, kind in (one, other)]
    first, second = keys_of(group_by("payer", "kind"), rows)
    assert first != second


def test_without_fields_all_events_have_one_key():
    group = group_by()
    assert keys_of(group, [{"payer": p, "kind": "", "account": 0, "vip": True} for p in "ab"]) == ["", ""]
    assert decode_key(group, "", SCHEMA) == {}


@given(TEXTS, st.integers(1, 4096))
def test_a_shard_is_one_of_so_many(key, shards):
    (shard,) = shards_of(group_by("payer"), pa.array([key]), shards)
    assert 0 <= shard < shards


def test_shards_are_those_of_every_earlier_run():
    group = group_by("payer")
    assert group.group_id == "7f5d1ad739c44f2a"
    assert shards_of(group, pa.array(["", "p1", "p2", "é", "a\x00b"]), 16).tolist() == [7, 15, 5, 2, 13]
    assert shards_of(group_by("kind"), pa.array(["p1"]), 4096) != shards_of(group, pa.array(["p1"]), 4096)


def test_many_keys_spread_over_all_shards():
    shards = shards_of(group_by("payer"), pa.array([f"p{number}" for number in range(16_000)]), 16)
    counts = np.bincount(shards, minlength=16)
    assert counts.min() > 800
    assert counts.max() < 1200


def test_an_amount_may_be_a_field_of_a_key(as_worded):
    counts = {"same": {"function": "same_count", "of": "amount", "window": "1h"}}
    written = Rule.model_validate({"rule_id": "r", "group_by": ["payer"], "features": counts, "when": "same > 2"})
    group = next(each for each in first_rule_set([written]).groups if "amount" in each.fields)
    key = encode_key({"payer": "p", "amount": "1050"}[field] for field in group.key_fields)
    assert key == key_of_values(group, ["p", "10.5"], SCHEMA)
    assert json.loads(key_writer(group, SCHEMA)(key)) == {"payer": "p", "amount": "10.50"}
    with pytest.raises(ValueError, check=as_worded):
        key_of_values(group, ["p", "10.501"], SCHEMA)
