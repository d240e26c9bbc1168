"""Keys of several columns, and networks: found as loops over tuples and over Python's own networks find them."""

import ipaddress
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.list_versions import ListVersions, PinnedLists
from buckets.config.engine import EngineSettings
from buckets.config.lists import ListSettings, list_fault
from buckets.errors import BucketsError
from buckets.expressions.certainty import possible_truths
from buckets.expressions.evaluation import computed, matching
from buckets.expressions.expression import normalise
from buckets.expressions.number_functions import numbers
from buckets.expressions.parser import parse_expression
from buckets.feeds.feed import ListRead
from buckets.feeds.lists import ListBook, WholeList
from buckets.feeds.rules.rule_book import RuleBook
from buckets.feeds.topics import read_entry
from buckets.lists.base import Entry, open_base
from buckets.lists.index import ListIndex, ListsAt
from buckets.lists.keys import KeyForm, joined_text, network_text, network_texts
from buckets.lists.list_file import load_list
from buckets.moment import parse_moment_ms
from buckets.rules.change import changes_between
from tests.core.examples import SCHEMA
from tests.fixed_rules import FixedRules
from tests.laws import examples

PAIRS, NETWORKS = KeyForm(2), KeyForm(1, "cidr")
ENTRIES = st.builds(
    Entry,
    values=st.dictionaries(st.sampled_from(["category", "tier"]), st.sampled_from(["x", "y"]), max_size=2),
    until_ms=st.none() | st.integers(-5, 5),
)
TIMES_MS = st.integers(-6, 6)


KEPT = st.sampled_from(["as it is", "compacted", "read from its file"])


def index_of(
    entries: dict[str, Entry], steps: list[dict[str, Entry | None]], form: KeyForm, kept: str, path: Path
) -> ListIndex:
    """A list after changes, kept in one of several ways."""
    index = ListIndex.of(entries, form)
    for changes in steps:
        index = index.with_changes(changes)
    if kept == "read from its file":
        index.base.write(str(path))
        return ListIndex(open_base(str(path)), index.changes)
    return index.compacted() if kept == "compacted" else index


def changed(entries: dict, steps: list[dict]) -> dict:
    for changes in steps:
        entries = {key: entry for key, entry in (entries | changes).items() if entry is not None}
    return entries


def counts(entry: Entry | None, time_ms: int) -> bool:
    return entry is not None and (entry.until_ms is None or time_ms < entry.until_ms)


# Keys of several columns

PART = st.sampled_from(["a", "b", 'a","b', '"', "\\", "[", "é\n", "a, b", "7", "true"])
PAIR = st.tuples(PART, PART)
PAIRED = st.dictionaries(PAIR, ENTRIES, max_size=6)


def by_text(entries: dict) -> dict[str, Entry]:
    return {joined_text(pair): entry for pair, entry in entries.items()}


@settings(deadline=None, max_examples=examples(100))
@given(
    KEPT,
    PAIRED,
    st.lists(st.dictionaries(PAIR, st.none() | ENTRIES, max_size=4), max_size=3),
    st.lists(st.tuples(st.none() | PART, st.none() | PART, TIMES_MS), min_size=1, max_size=12),
)
def test_pairs_are_found_as_in_a_dictionary_of_tuples(tmp_path_factory, kept, entries, steps, rows):
    index = index_of(by_text(entries), list(map(by_text, steps)), PAIRS, kept, tmp_path_factory.mktemp("base") / "l")
    entries = changed(entries, steps)
    kinds, payers, times_ms = zip(*rows, strict=True)
    columns = {"kind": pa.array(kinds, pa.string()), "payer": pa.array(payers, pa.string())}
    expected = [
        None if None in (kind, payer) else counts(entries.get((kind, payer)), time_ms) for kind, payer, time_ms in rows
    ]
    tiers = [
        entries[kind, payer].values.get("tier") if found else None
        for (kind, payer, _), found in zip(rows, expected, strict=True)
    ]
    lists = ListsAt({"l": index}, np.array(times_ms, np.int64))
    for condition, truths in {
        "(kind, payer) IN LIST l": expected,
        "(kind, payer) NOT IN LIST l": [None if each is None else not each for each in expected],
        "lookup(l, (kind, payer), 'tier') = 'x'": [None if tier is None else tier == "x" for tier in tiers],
    }.items():
        expression = normalise(parse_expression(condition))
        assert computed(expression, columns, len(rows), lists).to_pylist() == truths
        for row, truth in enumerate(truths):
            now = ListsAt(lists.lists, lists.times_ms[row : row + 1])
            assert possible_truths(expression, {"kind": kinds[row], "payer": payers[row]}, now) == {truth}


def test_parts_are_written_as_keys_of_one_column_are():
    columns = {
        "vip": pa.array([True, False]),
        "amount": numbers(pa.array([1250, 700], pa.int64()), 2),
        "kind": pa.array(["x", "x"]),
        "at": pa.array([0, 1]).cast(pa.timestamp("ms", "UTC")),
    }
    index = ListIndex.of({joined_text(["true", "12.5", "x", "5"]): Entry()}, KeyForm(4))
    condition = parse_expression("(vip, amount, kind, dayofweek(at)) IN LIST l")
    assert matching(condition, columns, 2, ListsAt({"l": index}, np.zeros(2, np.int64))).to_pylist() == [True, False]


# Networks

NETWORK = st.builds(
    lambda address, bits: ipaddress.ip_network((int(address) >> 32 - bits << 32 - bits, bits)),
    st.sampled_from(["10.0.0.0", "10.0.0.5", "10.0.0.6", "10.1.0.9", "255.255.255.255"]).map(ipaddress.IPv4Address),
    st.sampled_from([0, 8, 16, 29, 30, 31, 32]),
) | st.builds(
    lambda address, bits: ipaddress.IPv6Network((int(address) >> 128 - bits << 128 - bits, bits)),
    st.sampled_from(["2001:db8::5", "2001:db8::6", "::1", "::"]).map(ipaddress.IPv6Address),
    st.sampled_from([0, 32, 64, 125, 127, 128]),
)
ADDRESS = st.sampled_from(
    [
        *("10.0.0.5", "10.0.0.4", "10.0.0.7", "10.1.0.9", "10.9.0.1", "11.0.0.0", "255.255.255.255", "0.0.0.0"),
        *("2001:db8::5", "2001:DB8:0::0004", "2001:db8::7", "2001:db9::", "::1", "::", "fe80::1%eth0"),
        *("::ffff:10.0.0.5", "::ffff:0b00:0000", "10.0.0.0/8", "10.0.0.05", "10.0.0.5 ", "10.0.0.5\n", "10.0.0.256"),
        *("10.0.0", "167772165", "", "p1", "2001:db8::/32", "\u0661\u0660.0.0.5"),
    ]
)


def address_of(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text or "none")
    except ValueError:
        return None
    return (address.ipv4_mapped if address.version == 6 else None) or address


def around(entries: dict, text: str | None, time_ms: int) -> Entry | None:
    """The entry of the most specific network that counts and contains an address, by a loop over all networks."""
    address, best = address_of(text), None
    for network in entries if address is not None else ():
        is_better = best is None or network.prefixlen > best.prefixlen
        if (
            network.version == address.version
            and address in network
            and counts(entries[network], time_ms)
            and is_better
        ):
            best = network
    return None if best is None else entries[best]


def networks_by_text(entries: dict) -> dict[str, Entry]:
    return {str(network): entry for network, entry in entries.items()}


@settings(deadline=None, max_examples=examples(100))
@given(
    KEPT,
    st.dictionaries(NETWORK, ENTRIES, max_size=8),
    st.lists(st.dictionaries(NETWORK, st.none() | ENTRIES, max_size=4), max_size=3),
    st.lists(st.tuples(st.none() | ADDRESS, TIMES_MS), max_size=12),
)
def test_addresses_are_found_as_a_loop_over_all_networks_finds_them(tmp_path_factory, kept, entries, steps, rows):
    index = index_of(
        networks_by_text(entries),
        list(map(networks_by_text, steps)),
        NETWORKS,
        kept,
        tmp_path_factory.mktemp("base") / "l",
    )
    entries = changed(entries, steps)
    keys, times_ms = pa.array([text for text, _ in rows], pa.string()), np.array([time for _, time in rows], np.int64)
    found = [around(entries, *row) for row in rows]
    expected = [None if text is None else entry is not None for (text, _), entry in zip(rows, found, strict=True)]
    assert index.contain(keys, times_ms).to_pylist() == expected
    for name in ("category", "tier"):
        values = [None if entry is None else entry.values.get(name) for entry in found]
        assert index.values(keys, times_ms, name).to_pylist() == values


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.text("0123456789abf.:/% ", max_size=18) | ADDRESS | NETWORK.map(str), max_size=6))
def test_what_is_a_network_or_an_address_is_for_python_to_say(texts):
    everything = {"0.0.0.0/0": Entry(), "::/0": Entry()}
    index, times_ms = ListIndex.of(everything, NETWORKS), np.zeros(len(texts), np.int64)
    is_address = [address_of(text) is not None for text in texts]
    assert index.contain(pa.array(texts, pa.string()), times_ms).to_pylist() == is_address
    canonical: list[str] = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            with pytest.raises(ValueError, match=r"network|prefix"):
                network_text(text)
            with pytest.raises(ValueError, match=f"^entry {len(canonical) + 1}: "):
                network_texts(pa.array([*canonical, text]))
            continue
        mapped = network.network_address.ipv4_mapped if network.version == 6 and network.prefixlen >= 96 else None
        plain = (network.network_address, network.prefixlen) if mapped is None else (mapped, network.prefixlen - 96)
        canonical.append(f"{type(plain[0])(int(plain[0]))}/{plain[1]}")
        assert network_text(text) == canonical[-1]
    assert network_texts(pa.array(canonical, pa.string())).to_pylist() == canonical


def test_the_most_specific_network_counts_that_has_not_expired():
    entries = {"10.0.0.0/8": Entry({"category": "office"}), "10.1.0.0/16": Entry({"category": "guests"}, until_ms=5)}
    index = ListIndex.of(entries, NETWORKS)
    keys = pa.array(["10.1.2.3", "10.1.2.3", "10.2.0.1", "::ffff:10.1.2.3", "11.0.0.1"])
    found = index.values(keys, np.array([4, 5, 0, 0, 0]), "category")
    assert found.to_pylist() == ["guests", "office", "office", "guests", None]
    assert index.find("10.1.2.3/32") == ("10.1.0.0/16", entries["10.1.0.0/16"])
    assert index.find("10.0.0.0/8") == ("10.0.0.0/8", entries["10.0.0.0/8"])
    assert index.find("10.0.0.0/7") is None
    assert index.find("2001:db8::1/128") is None


# Files, tables and topics


def test_a_file_names_what_its_keys_are_made_of(tmp_path):
    pairs, networks, tagged = tmp_path / "pairs.csv", tmp_path / "networks.yaml", tmp_path / "tagged.csv"
    pairs.write_text("key1,key2,category\np1,b7,rent\n")
    networks.write_text("- {network: 10.0.0.1, category: vpn}\n- {network: '2001:DB8::/32'}\n")
    tagged.write_text("key,network\np1,10.0.0.0/8\n")
    assert load_list(pairs).find('["p1","b7"]') == ('["p1","b7"]', Entry({"category": "rent"}))
    assert load_list(networks).get_all(["10.0.0.1/32", "2001:db8::/32"]) == [Entry({"category": "vpn"}), Entry()]
    assert load_list(tagged).get("p1") == Entry({"network": "10.0.0.0/8"})
    assert [load_list(path).form for path in (pairs, networks, tagged)] == [PAIRS, NETWORKS, KeyForm()]


def test_the_columns_of_a_key_may_be_named(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("payer,kind,since\np1,rent,2020\n")
    assert load_list(path, ["payer", "kind"]).get('["p1","rent"]') == Entry({"since": "2020"})
    path.write_text("range,since\n::ffff:10.0.0.0/104,2020\n")
    assert load_list(path, "range", match="cidr").get("10.0.0.0/8") == Entry({"since": "2020"})


@pytest.mark.parametrize(
    ("text", "key", "match"),
    [
        ("network\n10.0.0.0/8\n10.0.0.1/8\n", None, "text"),
        ("network\n10.0.0.0/33\n", None, "text"),
        ("key\np1\n", None, "cidr"),
        ("network\n10.0.0.0/8\n10.0.0.0/255.0.0.0\n", None, "text"),
        ("key1,key2\np1,\n", None, "text"),
        ("key1,key2\np1,b7\np1,b7\n", None, "text"),
        ("key1,key2\np1,b7\n", ["key1", "key3"], "text"),
        ("key1,key2\np1,b7\n", ["key1", "key2"], "cidr"),
        ("key2,key3\np1,b7\n", [], "text"),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(tmp_path, text, key, match, as_worded):
    path = tmp_path / "l.csv"
    path.write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        load_list(path, key, match)


@pytest.mark.parametrize(
    ("key", "form", "found"),
    [
        ('[ "p1" , "b7" ]', PAIRS, '["p1","b7"]'),
        ('["p1","\\u00e9"]', PAIRS, '["p1","é"]'),
        ("10.0.0.1", NETWORKS, "10.0.0.1/32"),
        ("2001:DB8:0::/32", NETWORKS, "2001:db8::/32"),
        ('["p1"]', KeyForm(), '["p1"]'),
    ],
)
def test_keys_of_messages_are_brought_into_their_one_form(key, form, found):
    assert read_entry(key.encode(), b"{}", form) == (found, Entry())
    assert read_entry(key.encode(), None, form) == (found, None)


@pytest.mark.parametrize(
    ("key", "form"),
    [
        ("p1", PAIRS),
        ('["p1"]', PAIRS),
        ('["p1",7]', PAIRS),
        ('["p1",""]', PAIRS),
        ("[" * 10_000, PAIRS),
        ("10.0.0.1/8", NETWORKS),
        ("p1", NETWORKS),
        ("", NETWORKS),
        (json.dumps(["p" * 999, "b"]), PAIRS),
    ],
)
def test_what_is_no_key_is_refused_in_one_line(key, form, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        read_entry(key.encode(), b"{}", form)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "file", "path": "x", "key": ["a", "a"]},
        {"kind": "file", "path": "x", "key": ["a", "b"], "match": "cidr"},
        {"kind": "kafka", "topic": "x", "key": ["a"]},
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        ListSettings.model_validate(settings)


# Versions


class Keyed:
    """A feed of changes by keys of a form."""

    fault = None

    def __init__(self, form: KeyForm, changes: dict[str, Entry | None]) -> None:
        self.origin, self._reads = f"of {form}", [ListRead(changes=changes, form=form)]
        self._form = form

    def start(self, position):
        pass

    def read(self):
        return self._reads.pop(0) if self._reads else ListRead(form=self._form)

    def stop(self):
        pass


def newest(checkpoint: Checkpoint, feed) -> tuple[int, ListIndex]:
    """The newest version of a list when a job starts with a feed, as a task reads it."""
    book = ListBook(checkpoint, {"l": feed}, keep_all=True)
    book.start_reading()
    book.look()
    number = book.newest()["l"]
    return number, PinnedLists(ListVersions(checkpoint.path), {"l": number})["l"]


def test_a_list_whose_keys_are_made_of_something_else_begins_anew(checkpoint):
    number, texts = newest(checkpoint, Keyed(KeyForm(), {"10.0.0.1": Entry(), "p1": Entry()}))
    assert (number, texts.form, texts.entries()) == (1, KeyForm(), 2)
    number, networks = newest(checkpoint, Keyed(NETWORKS, {"10.0.0.0/8": Entry()}))
    assert (number, networks.form, networks.entries()) == (2, NETWORKS, 1)
    assert networks.contain(pa.array(["10.9.9.9"]), np.zeros(1, np.int64)).to_pylist() == [True]
    number, none = newest(checkpoint, Keyed(PAIRS, {}))
    assert (number, none.form, none.entries()) == (3, PAIRS, 0)
    assert newest(checkpoint, Keyed(PAIRS, {}))[0] == 3
    assert PinnedLists(ListVersions(checkpoint.path), {"l": 1})["l"].form == KeyForm()


def test_changes_keep_what_keys_are_made_of(checkpoint):
    newest(checkpoint, Keyed(NETWORKS, {"10.0.0.0/8": Entry()}))
    number, index = newest(checkpoint, Keyed(NETWORKS, {"10.0.0.0/8": None, "2001:db8::/32": Entry()}))
    keys = pa.array(["10.0.0.1", "2001:db8::1"])
    assert (number, index.contain(keys, np.zeros(2, np.int64)).to_pylist()) == (2, [False, True])


def test_a_file_that_has_other_keys_while_the_job_runs_is_a_fault(checkpoint, tmp_path, as_worded):
    path, said = tmp_path / "l.csv", []
    path.write_text("network\n10.0.0.0/8\n")
    book = ListBook(checkpoint, {"l": WholeList(path)}, said.append)
    book.start_reading()
    path.write_text("key1,key2\na,b\n")
    os.utime(path, (0, 0))
    book.look()
    assert book.newest() == {"l": 1}
    assert as_worded(said[0])
    path.write_text("network\n10.0.0.0/8\n11.0.0.0/8\n")
    os.utime(path, (1, 1))
    book.look()
    assert (book.newest(), checkpoint.lists.faults()) == ({"l": 2}, {})


def test_a_yaml_list_may_be_emptied_and_have_the_same_keys_again(checkpoint, tmp_path):
    path, said = tmp_path / "l.yaml", []
    book, found = ListBook(checkpoint, {"l": WholeList(path)}, said.append, keep_all=True), []
    for number, text in enumerate(["[]", "- {key1: a, key2: b}", "[]", "- {key1: a, key2: c}"]):
        path.write_text(text)
        os.utime(path, (number, number))
        (book.look if number else book.start_reading)()
        found.append((book.newest()["l"], [index.entries() for index in book.known.values()]))
        assert list_fault(features_rule("payments > 1", where="(payer, kind) IN LIST l"), book.known) is None
    assert (found, said) == ([(1, [0]), (2, [1]), (3, [0]), (4, [1])], [])


def test_rules_are_checked_by_the_lists_that_are_read(checkpoint, as_worded):
    lists = ListBook(checkpoint, {"l": Keyed(PAIRS, {})})
    book = RuleBook(checkpoint, FixedRules(()), SCHEMA, EngineSettings(), lists=lists)
    wheres = ("(payer, kind) IN LIST l", "payer IN LIST l")
    asked = [changes_between((), [features_rule("payments > 1", where=where)]) for where in wheres]
    assert [len(book.refusals(changes)) for changes in asked] == [0, 0]
    lists.start_reading()
    assert [len(book.refusals(changes)) for changes in asked] == [0, 1]
    assert as_worded(book.refusals(asked[1])[0].reason)


def test_a_table_may_have_keys_of_several_columns(checkpoint, tmp_path):
    write_deltalake(tmp_path / "table", pa.table({"payer": [1, 2], "kind": ["x", "y"], "tier": ["a", None]}))
    _, index = newest(checkpoint, WholeList(tmp_path / "table", ["payer", "kind"], is_table=True))
    assert index.get_all(['["1","x"]', '["2","y"]']) == [Entry({"tier": "a"}), Entry()]


# Rules


def features_rule(when: str, **changes) -> buckets.Rule:
    features = {"payments": {"function": "count", "window": "1h"}}
    written = {"rule_id": "f", "group_by": ["payer"], "features": features, "when": when}
    return buckets.Rule.model_validate(written | changes)


def events(rows: list[tuple[str, int, str, str | None]]) -> pa.Table:
    """Events as (id, time in ms, payer, kind)."""
    ids, times_ms, payers, kinds = zip(*rows, strict=True)
    columns = {"id": pa.array(ids), "payer": pa.array(payers), "kind": pa.array(kinds, pa.string())}
    columns |= {"account": pa.array([1] * len(rows)), "vip": pa.array([True] * len(rows))}
    return pa.table(columns | {name: pa.array(["1"] * len(rows)) for name in ("amount", "fee")} | {"at": times_ms})


def test_filters_conditions_and_filters_of_features_have_such_keys():
    index = ListIndex.of({'["p1","CARD"]': Entry(until_ms=3_000)}, PAIRS)
    networks = ListIndex.of({"10.0.0.0/8": Entry({"category": "vpn"})}, NETWORKS)
    features = {"known": {"function": "count", "window": "1h", "where": "(payer, kind) IN LIST pairs"}}
    when = "known = 1 AND (payer, kind) NOT IN LIST pairs AND lookup(nets, kind, 'category') = 'vpn'"
    alerts = buckets.evaluate(
        events([("a", 1_000, "p1", "CARD"), ("b", 3_000, "p1", "CARD"), ("c", 3_001, "p1", "10.9.9.9")]),
        [features_rule(when, features=features)],
        SCHEMA,
        lists={"pairs": index, "nets": networks},
    ).alerts
    assert alerts["event_id"].to_pylist() == ["c"]


@pytest.mark.parametrize(
    ("where", "parts"),
    [("payer NOT IN LIST l", 2), ("(payer, kind) IN LIST l", 1), ("lookup(l, (payer, kind), 'a') = 'x'", 3)],
)
def test_a_key_of_another_number_of_parts_is_refused_in_one_line(where, parts, as_worded):
    index = ListIndex.of({}, replace(KeyForm(), parts=parts))
    with pytest.raises(BucketsError, check=as_worded):
        buckets.evaluate(
            events([("a", 0, "p", "k")]), [features_rule("payments > 1", where=where)], SCHEMA, lists={"l": index}
        )


def test_the_configuration_says_how_many_parts_a_key_has():
    pairs = ListSettings.model_validate({"kind": "kafka", "topic": "x", "key": ["a", "b"]})
    networks = ListSettings.model_validate({"kind": "file", "path": "x", "match": "cidr"})
    of_pairs, of_text = features_rule("(payer, kind) IN LIST l"), features_rule("payer IN LIST l")
    assert [list_fault(rule, {"l": pairs}) is None for rule in (of_pairs, of_text)] == [True, False]
    assert [list_fault(rule, {"l": networks}) is None for rule in (of_pairs, of_text)] == [False, True]
    both = features_rule("payer IN LIST a", where="payer IN LIST l")
    assert [list_fault(both, {"a": networks, "l": there}) is None for there in (pairs, networks, None)] == [
        False,
        True,
        True,
    ]


# Hours of business

HOURS = ("dayofweek(at AT TIME ZONE 'Europe/Berlin')", "hour(at AT TIME ZONE 'Europe/Berlin')")


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-07-20T06:59:59Z", False),  # a Monday in summer, 8:59
        ("2026-07-20T07:00:00Z", True),
        ("2026-07-24T14:00:00Z", False),  # a Friday, 16:00
        ("2026-12-21T07:59:59Z", False),
        ("2026-12-21T08:00:00Z", True),
    ],
)
def test_hours_of_business_are_a_list_of_days_and_hours(moment, is_open):
    open_hours = {(2, hour) for hour in range(9, 18)} | {(6, hour) for hour in range(9, 16)}
    index = ListIndex.of({joined_text(map(str, each)): Entry() for each in open_hours}, PAIRS)
    when, moment_ms = normalise(parse_expression(f"({', '.join(HOURS)}) IN LIST hours")), parse_moment_ms(moment)
    lists = ListsAt({"hours": index}, np.array([moment_ms]))
    assert matching(when, {"at": pa.array([moment_ms]).cast(pa.timestamp("ms", "UTC"))}, 1, lists)[0].as_py() == is_open
    assert possible_truths(when, {"at": moment_ms}, lists) == {is_open}


def test_a_key_of_another_number_of_parts_stops_the_evaluation(as_worded):
    columns = {"a": pa.array(["x"]), "b": pa.array(["y"])}
    lists = ListsAt({"l": ListIndex.of({}, PAIRS)}, np.zeros(1, np.int64))
    for condition in ("a IN LIST l", "lookup(l, (a, b, a), 'c') = 'd'"):
        with pytest.raises(BucketsError, check=as_worded):
            matching(parse_expression(condition), columns, 1, lists)
