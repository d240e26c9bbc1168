"""Heads that were read from a store: which of them are written back, and what is removed with them."""

from types import SimpleNamespace

import numpy as np
import pytest

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.shard_store import ShardStore, StoredHeads, head_key, head_keys, page_key
from buckets.kernel.score import Pages
from tests.core.pipeline import CountedEntries

GROUP = "11" * 8
A, B, C = (head_key(GROUP, key) for key in "abc")


@pytest.fixture
def store() -> ShardStore:
    store = ShardStore(*(CountedEntries() for _ in range(4)))
    store.heads.put([(A, b"head a"), (B, b"head b")])
    store.pages.put([(page_key(A, 1), b"page 1"), (page_key(B, 2), b"page 2")])
    return store


def read(store: ShardStore, *keys: str) -> StoredHeads:
    return StoredHeads.read(store, ByteStrings.of(head_keys(GROUP, keys)))


def test_a_new_key_has_no_head(store):
    assert read(store, "a", "c").heads.to_list() == [b"head a", b""]


def test_pages_are_read_by_the_index_of_their_key(store):
    pages = read(store, "b", "a").read_pages(np.array([1, 0]), np.array([1, 2]))
    assert pages.to_list() == [b"page 1", b"page 2"]


def test_some_of_the_keys_keep_what_was_read_of_them(store):
    stored = read(store, "a", "b", "c").take(np.array([0, 2]))
    assert (stored.state_keys.to_list(), stored.heads.to_list()) == ([A, C], [b"head a", b""])


def test_only_what_has_changed_is_written(store):
    stored, writes = read(store, "a", "b", "c"), store.heads.writes
    pages = Pages(np.array([0, 2]), np.array([1, 0]), ByteStrings.of([b"", b"p"]))
    stored.write(SimpleNamespace(heads=ByteStrings.of([b"head a", b"new b", b"new c"]), pages=pages))
    assert store.heads.data == {A: b"head a", B: b"new b", C: b"new c"}
    assert store.heads.writes == writes + 2
    assert store.pages.data == {page_key(B, 2): b"page 2", page_key(C, 0): b"p"}
