"""How far a query lags behind its topics."""

import json

import pytest

from buckets.monitor.query_news import MOST_PARTITIONS, QueryNews


def progress(latest: object, end: object) -> dict:
    return {"sources": [{"latestOffset": latest, "endOffset": end}]}


def test_messages_behind_are_those_between_the_end_of_the_batch_and_the_end_of_the_topic():
    latest, end = {"t": {"0": 120, "1": 7}}, {"t": {"0": 100, "1": 7}}
    assert QueryNews.of(progress(latest, end)).lag == 20
    assert QueryNews.of(progress(json.dumps(latest), json.dumps(end))).behind == {("t", "0"): 20, ("t", "1"): 0}
    assert QueryNews.of(progress(latest, {"t": {"0": 120}})).lag == 7


@pytest.mark.parametrize(
    ("latest", "end"), [(None, None), ({"logOffset": 3}, {"logOffset": 3}), (None, {"t": {"0": 1}})]
)
def test_a_source_without_offsets_of_topics_says_nothing(latest, end):
    assert QueryNews.of(progress(latest, end)).lag is None
    assert QueryNews.of({}).lag is QueryNews.of(None).lag is None


def test_very_many_partitions_are_told_together():
    behind = {("t", str(number)): 2 for number in range(MOST_PARTITIONS + 100)}
    rows = QueryNews(behind).to_json()["behind"]
    assert len(rows) == MOST_PARTITIONS
    assert rows[-1] == ["other", "other", 2 * 101]
    assert sum(messages for _, _, messages in rows) == QueryNews(behind).lag


def test_phases_of_a_batch_are_in_seconds():
    assert QueryNews.of({"durationMs": {"addBatch": 120}}).phases_s == {"addBatch": 0.12}
