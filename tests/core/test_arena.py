"""An arena is a dictionary: through growth, copies, removals and keys of any bytes; and it does not grow for ever."""

from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings, concatenated
from buckets.engine.storage.arena import ABSENT, ENTRY_BYTES, PENDING, STORED, Arena
from buckets.engine.storage.shard_store import ArenaEntries, column_of
from tests.laws import examples

KEYS = st.one_of(st.sampled_from([b"", b"a", b"b", b"\0", b"\0a"]), st.binary(max_size=20))
VALUES = st.one_of(st.binary(min_size=1, max_size=60), st.integers(1, 3000).map(bytes))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.dictionaries(KEYS, VALUES, max_size=20)),
        st.tuples(st.just("remove"), st.lists(KEYS, max_size=8, unique=True)),
        st.tuples(st.just("get"), st.lists(KEYS, max_size=8)),
    ),
    max_size=30,
)


@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_entries_in_an_arena_are_those_of_a_dictionary(steps):
    entries, model = ArenaEntries(), {}
    for what, argument in steps:
        if what == "put":
            entries.put([*argument.items()])
            model.update(argument)
        elif what == "remove":
            entries.remove(ByteStrings.of(argument))
            for key in argument:
                model.pop(key, None)
        else:
            assert entries.get(argument) == [model.get(key, b"") for key in argument]
        assert sorted(entries.list_keys()) == sorted(model)
    assert entries.get([*model]) == [*model.values()]


def test_a_map_of_which_all_is_removed_again_and_again_does_not_grow():
    entries = ArenaEntries()
    for turn in range(50):
        keys = [b"%d/%d" % (turn, number) for number in range(500)]
        entries.put([(key, bytes(100)) for key in keys])
        entries.remove(ByteStrings.of(keys))
    assert entries.list_keys() == []
    assert entries._arena.size <= 1000
    assert len(entries._arena._buffer) < 500_000


def test_values_that_grow_and_shrink_do_not_fill_the_buffer():
    entries = ArenaEntries()
    for turn in range(300):
        entries.put([(b"%d" % number, bytes(1 + turn * number % 701)) for number in range(100)])
    assert entries.get([b"7"]) == [bytes(1 + 299 * 7 % 701)]
    assert len(entries._arena._buffer) < 1_000_000


def test_a_copy_says_where_each_entry_is_and_leaves_out_what_is_forgotten():
    arena = Arena()
    keys = ByteStrings.of([b"logged", b"old", b"used"])
    arena.put(keys.slice(0, 1), keys.slice(0, 1), 5)
    stored = arena.put(keys.slice(1, 3), keys.slice(1, 3), STORED)
    assert not arena.begin_epoch()
    assert arena.find(keys.slice(2, 3)).tolist() == [stored[1]]
    assert arena.begin_epoch()
    assert arena.find(keys).tolist() == [0, ABSENT, 2]
    assert arena.compact().tolist() == [0, ABSENT, 1]
    assert arena.find(keys).tolist() == [0, ABSENT, 1]
    assert arena.values_of(arena.find(keys)).to_list() == [b"logged", b"", b"used"]


def test_the_bytes_of_what_is_not_in_the_store_are_those_of_its_keys_and_values():
    arena = Arena()
    keys = ByteStrings.of([b"%d" % number for number in range(200)])
    for length, place in ((10, PENDING), (3, 7), (40, STORED), (40, PENDING)):
        arena.put(keys, ByteStrings.of([bytes(length)] * keys.size), place)
    arena.settle(arena.find(keys)[:50])
    outside = arena.outside_store()
    strings = concatenated([arena.keys_of(outside), arena.values_of(outside)])
    assert arena.logged_bytes == len(strings.data) + ENTRY_BYTES * len(outside)
    assert len(outside) == 150


@given(st.lists(st.binary(max_size=9), max_size=9), st.binary(max_size=5), st.data())
def test_byte_strings_are_a_list_of_bytes(strings, prefix, data):
    columns = ByteStrings.of(strings)
    assert columns.to_list() == strings
    assert columns.with_prefix(prefix).to_list() == [prefix + string for string in strings]
    begin = data.draw(st.integers(0, len(strings)))
    end = data.draw(st.integers(begin, len(strings)))
    part = columns.slice(begin, end)
    assert part.to_list() == strings[begin:end]
    assert part.with_prefix(prefix).to_list() == [prefix + string for string in strings[begin:end]]
    assert concatenated([part, columns, part]).to_list() == strings[begin:end] + strings + strings[begin:end]
    others = data.draw(st.lists(st.binary(max_size=2), min_size=len(strings), max_size=len(strings)))
    both = [string + other for string, other in zip(strings, others, strict=True)]
    assert columns.followed_by(ByteStrings.of(others)).to_list() == both
    assert part.followed_by(ByteStrings.of(others).slice(begin, end)).to_list() == both[begin:end]
    assert column_of(part).to_pylist() == strings[begin:end]
    assert ByteStrings.empties(len(strings)).to_list() == [b""] * len(strings)
    differs = columns.differs_from(ByteStrings.of(others))
    assert differs.tolist() == [one != other for one, other in zip(strings, others, strict=True)]
