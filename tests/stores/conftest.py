"""One object store for all tests of this folder, each with a bucket of its own."""

import itertools
from collections.abc import Iterator

import pytest

from tests.stores.server import Store, in_environment, object_store

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Iterator[Store]:
    """A store that this process reaches."""
    with object_store(tmp_path_factory.mktemp("store")) as running, in_environment(running):
        yield running


@pytest.fixture
def bucket(store: Store) -> str:
    """The name of a bucket in which nothing is yet."""
    name = f"tests-{next(_NUMBERS)}"
    store.bucket(name)
    return name
