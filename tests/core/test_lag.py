"""How far a query lags behind its topics."""

import json

import pytest

from buckets.monitor.lag import messages_behind


def progress(latest: object, end: object) -> dict:
    return {"sources": [{"latestOffset": latest, "endOffset": end}]}


def test_messages_behind_are_those_between_the_end_of_the_batch_and_the_end_of_the_topic():
    latest, end = {"t": {"0": 120, "1": 7}}, {"t": {"0": 100, "1": 7}}
    assert messages_behind(progress(latest, end)) == 20
    assert messages_behind(progress(json.dumps(latest), json.dumps(end))) == 20
    assert messages_behind(progress(latest, {"t": {"0": 120}})) == 7


@pytest.mark.parametrize(
    ("latest", "end"), [(None, None), ({"logOffset": 3}, {"logOffset": 3}), (None, {"t": {"0": 1}})]
)
def test_a_source_without_offsets_of_topics_says_nothing(latest, end):
    assert messages_behind(progress(latest, end)) is None
    assert messages_behind({}) is None
