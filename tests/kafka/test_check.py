"""`buckets check` asks a real broker for the topics of a configuration, and makes none."""

import json

import yaml

from tests.kafka.kafka_job import KafkaJob


def looked_at(ran) -> dict[str, str | list[str]]:
    """By thing what is there, or what is wrong with it."""
    return {each["thing"]: each["note"] if each["ok"] else each["faults"] for each in json.loads(ran.out)["things"]}


def test_brokers_and_topics_are_looked_at_and_nothing_is_made(buckets, broker, tmp_path):
    job = KafkaJob(broker, tmp_path / "job", partitions=2)
    ran = buckets("check", job.conf, "--json")
    assert ran.code == 0, ran.out
    found = looked_at(ran)
    assert (found["kafka"], found[f"topic {job.topic}"]) == ("answers", "2 partitions")
    conf = yaml.safe_load(job.conf.read_text())
    conf["rules"] = {"topic": job.topic}
    conf["source"]["topic"] = f"{job.topic}-not-there"
    conf["lists"] = {"blocked": {"kind": "kafka", "topic": f"{job.topic}-list"}}
    job.conf.write_text(yaml.safe_dump(conf))
    ran = buckets("check", job.conf, "--json")
    assert ran.code == 1
    found = looked_at(ran)
    assert "has 2 partitions, and its changes need one order" in found[f"topic {job.topic}"][0]
    for missing in (f"{job.topic}-not-there", f"{job.topic}-list", f"{job.topic}_rejected"):
        assert f"there is no topic {missing}; `buckets kafka topics CONF` creates" in found[f"topic {missing}"][0]
    assert found == looked_at(buckets("check", job.conf, "--json"))
    assert not job.checkpoint.exists()


def test_a_broker_that_does_not_answer_is_one_line(buckets, broker, tmp_path):
    job = KafkaJob(broker, tmp_path / "job")
    conf = yaml.safe_load(job.conf.read_text())
    conf["kafka"]["bootstrap_servers"] = "localhost:1"
    job.conf.write_text(yaml.safe_dump(conf))
    ran = buckets("check", job.conf, "--json")
    found = looked_at(ran)
    assert ran.code == 1
    assert len(found["kafka"]) == 1
    assert "kafka localhost:1: no broker answers" in found["kafka"][0]
    assert not any(thing.startswith("topic ") for thing in found)
