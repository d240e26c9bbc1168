"""State that is carried over goes on in its topic: no payment is scored twice, and none is left out."""

import pytest
import yaml

from buckets.config.job import load_job
from buckets.outputs.columns import EVALUATIONS, TOPICS
from buckets.spark.state_carry import export_state, import_state, plan_of
from tests.kafka.kafka_job import KafkaJob, comparable
from tests.kafka.test_scoring import run_to_end
from tests.spark.payments import payments

pytestmark = pytest.mark.spark


def test_a_job_with_more_shards_goes_on_where_the_old_one_stopped_in_its_topic(spark, broker, tmp_path):
    job, events = KafkaJob(broker, tmp_path / "job"), payments(120)
    job.send(events[:70])
    first = sum(report.account.events_in for report in run_to_end(spark, job))
    job.send(events[70:])
    export_state(spark, job.checkpoint, tmp_path / "export", lambda line: None)
    settings = yaml.safe_load(job.conf.read_text())
    settings |= {"checkpoint": "second", "engine": settings["engine"] | {"shards": 9}, "partitions": 3}
    job.conf.write_text(yaml.safe_dump(settings))
    wider = load_job(job.conf)
    plan = plan_of(tmp_path / "export", wider)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    try:
        import_state(spark, tmp_path / "export", wider, plan, lambda line: None)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    second = sum(report.account.events_in for report in run_to_end(spark, job))
    assert (first, second) == (70, 50)
    expected = job.replay({})
    for name in set(TOPICS) - {EVALUATIONS}:
        assert comparable(job.messages(name)) == comparable(expected[name]), name
