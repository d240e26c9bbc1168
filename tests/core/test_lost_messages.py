"""Which batches of a job an archive can never have, because the audit has not kept what they have read."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from buckets.archive.sources import BatchRange, lost_batches
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.source_offsets import spark_folder
from buckets.checkpoint.topic_generations import TopicGeneration, TopicGenerations
from buckets.config.engine import EngineSettings
from buckets.config.job import Job
from buckets.config.settings import JobSettings
from tests.core.examples import SCHEMA

Ends = Mapping[str, Mapping[int, int]]
"""By topic and partition, an offset."""
TOPIC = "payments"


def job_of(root: Path, *topics: str) -> Job:
    """A job on topics whose results go to tables."""
    settings: dict[str, Any] = {
        "source": {"kind": "kafka", "topics": list(topics)},
        "kafka": {"bootstrap_servers": "one:9092"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": str(root / "tables")},
        "audit": {"path": str(root / "audit"), "checkpoint": str(root / "audit-checkpoint")},
    }
    checkpoint = root / "checkpoint"
    return Job(settings=JobSettings.model_validate(settings), event_schema=SCHEMA, rules=(), checkpoint=checkpoint)


def begins(checkpoint: Path, offsets: Ends) -> None:
    """Write where the first batch of a query begins."""
    file = spark_folder(checkpoint) / "sources" / "0" / "0"
    file.parent.mkdir(parents=True)
    file.write_text(f"v1\n{json.dumps(offsets)}")


def audited(root: Path, begin: Ends, end: Ends) -> None:
    """Write where an audit begins, and how far it has come."""
    checkpoint = root / "audit-checkpoint"
    begins(checkpoint, begin)
    for folder, text in (("offsets", f"v1\n{{}}\n{json.dumps(end)}"), ("commits", "v1\n{}")):
        (spark_folder(checkpoint) / folder).mkdir()
        (spark_folder(checkpoint) / folder / "0").write_text(text)


def generations(checkpoint: Path, topic: str, *of_topic: TopicGeneration) -> None:
    """Write the generations of a topic."""
    known = TopicGenerations(checkpoint)
    known.adopt({topic: of_topic[0].topic_id})
    for before, generation in pairwise(of_topic):
        known.end({topic: before.end or {}})
        known.add(topic, generation)


def lost(job: Job, *ends: Ends, before: int | None = None, isolation: Mapping[int, str] | None = None) -> list[int]:
    """The lost ones of batches that end so; those up to `before` are not asked for."""
    cuts = [BatchEnd(batch_id, 1, json.dumps(end)) for batch_id, end in enumerate(ends)]
    first = 0 if before is None else before + 1

    def terms_of(batch_id: int) -> Terms:
        given = (isolation or {}).get(batch_id, "read_committed")
        return Terms(event_schema=SCHEMA, engine=EngineSettings(), evaluations=False, output="delta", isolation=given)

    return list(lost_batches(job, BatchRange(None if before is None else cuts[before], cuts[first:]), terms_of))


def test_batches_that_end_before_the_audit_began_and_the_one_in_which_it_did_are_lost(tmp_path):
    job = job_of(tmp_path, TOPIC)
    begins(job.checkpoint, {TOPIC: {0: 5, 1: 0}})
    audited(tmp_path, {TOPIC: {0: 25, 1: 0}}, {TOPIC: {0: 40, 1: 9}})
    ends = [{TOPIC: {0: at, 1: other}} for at, other in ((10, 0), (20, 5), (20, 9), (30, 9), (40, 9), (90, 9))]
    assert lost(job, *ends) == [0, 1, 3], "batch 2 has read another partition, and the last one is to come"
    assert lost(job, *ends, before=3) == []


def test_a_job_that_began_where_the_audit_did_or_later_has_lost_nothing(tmp_path):
    job = job_of(tmp_path, TOPIC)
    begins(job.checkpoint, {TOPIC: {0: 30}})
    audited(tmp_path, {TOPIC: {0: 30}}, {TOPIC: {0: 31}})
    assert lost(job, {TOPIC: {0: 40}}, {TOPIC: {0: 50, 1: 7}}) == []


def test_a_batch_of_several_topics_is_lost_with_any_of_them(tmp_path):
    job = job_of(tmp_path, "one", "two")
    begins(job.checkpoint, {"one": {0: 0}, "two": {0: 0}})
    audited(tmp_path, {"one": {0: 2}, "two": {0: 7}}, {})
    assert lost(job, *({"one": {0: at}, "two": {0: at}} for at in (2, 4, 6, 8, 10))) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("audit", "expected"),
    [
        ([TopicGeneration("a")], []),  # the second one is still to come
        ([TopicGeneration("a", end={0: 20}), TopicGeneration("b", 1)], []),
        ([TopicGeneration("a", end={0: 15}), TopicGeneration("b", 1)], [1]),
        ([TopicGeneration("a", end={0: 20}), TopicGeneration("b", 1, begin={0: 6})], [2]),
        ([TopicGeneration("b")], [0, 1]),
        ([TopicGeneration("another")], []),
    ],
)
def test_of_a_topic_that_was_created_again_what_the_audit_has_missed_is_lost(tmp_path, audit, expected):
    job = job_of(tmp_path, TOPIC)
    begins(job.checkpoint, {TOPIC: {0: 0}})
    generations(job.checkpoint, TOPIC, TopicGeneration("a", end={0: 20}), TopicGeneration("b", 2, begin={0: 3}))
    audited(tmp_path, {TOPIC: {0: 0}}, {TOPIC: {0: 12}})
    generations(tmp_path / "audit-checkpoint", TOPIC, *audit)
    assert lost(job, *({TOPIC: {0: at}} for at in (10, 20, 9, 14))) == expected


def test_what_was_read_under_another_isolation_is_not_what_the_audit_has(tmp_path):
    job = job_of(tmp_path, TOPIC)
    audited(tmp_path, {TOPIC: {0: 0}}, {TOPIC: {0: 90}})
    assert lost(job, {TOPIC: {0: 10}}, {TOPIC: {0: 20}}, isolation={0: "read_uncommitted"}) == [0]
