"""Kinds of sources: each is read as its class."""

from typing import get_args

import pytest

from buckets.config.source import KINDS, FileSource, SourceSettings


def test_every_kind_of_source_has_a_class_of_its_own():
    assert set(get_args(SourceSettings.model_fields["kind"].annotation)) == set(KINDS)
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_is_read_as_the_class_of_its_kind(kind: str):
    order = {"arrival": "at"} if kind == "delta" else {}
    source = SourceSettings.model_validate({"kind": kind, KINDS[kind].needs: "payments"} | order)
    assert type(source) is KINDS[kind]
    assert (source.folder is not None) == isinstance(source, FileSource)
