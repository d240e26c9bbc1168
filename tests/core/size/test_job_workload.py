"""The workload of a configuration: its groupings, their timelines, its cores."""

import pytest
import yaml

from buckets.config.job import Job, load_job
from buckets.errors import ConfigurationError
from buckets.resources import DEFAULT_SCHEMA
from buckets.size.workload import Cluster, SizeQuestion, Width, cluster_of, notes_of, parse_keys, workload_of

HOUR_MS = 3_600_000
SHORT = {
    "rule_id": "sum",
    "group_by": ["payerId"],
    "aggregate": {"function": "sum", "measure": "paymentAmount"},
    "window": {"length": "24h"},
    "limit": {"operator": ">", "value": 5},
}
FEATURES = {
    "rule_id": "spike",
    "group_by": ["payerId", "beneficiaryId"],
    "features": {
        "recent": {"function": "sum", "of": "paymentAmount", "window": "1h"},
        "payments": {"function": "count", "window": "30d"},
    },
    "when": "recent > 5 AND payments >= 10",
}


def asked(*keys: str, cores: int | None = None) -> SizeQuestion:
    return SizeQuestion(100, parse_keys(keys or ["1k"]), 16, cores, Cluster(8, 1, 1 << 35))


def job(folder, *rules, **changes) -> Job:
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": list(rules or (SHORT, FEATURES))}))
    conf = {
        "source": {"kind": "json", "path": "in"},
        "schema": str(DEFAULT_SCHEMA),
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
    } | changes
    (folder / "conf.yaml").write_text(yaml.safe_dump(conf))
    return load_job(folder / "conf.yaml")


def test_groupings_are_those_of_the_engine(tmp_path):
    found = workload_of(job(tmp_path), asked("1k", "beneficiaryId,payerId=9k"))
    payer, pair = found.groupings
    assert (payer.fields, payer.keys, payer.tracks, payer.features) == (1, 1_000, 1, 1)
    assert (pair.fields, pair.keys, pair.tracks) == (2, 9_000, 1)
    assert payer.horizon_ms == payer.tail_ms == 25 * HOUR_MS
    assert pair.horizon_ms == (30 * 24 + 1) * HOUR_MS
    assert (found.conditions, found.event_fields) == (1, 3)
    assert (found.is_text, found.shards, found.tasks, found.cluster) == (True, 16, 8, Cluster(8, 1, 1 << 35))


def test_rules_of_one_grouping_share_its_timelines(tmp_path):
    other = SHORT | {"rule_id": "more", "window": {"length": "48h"}}
    found = workload_of(job(tmp_path, SHORT, other), asked())
    assert [(each.features, each.tracks, each.horizon_ms) for each in found.groupings] == [(2, 1, 49 * HOUR_MS)]


def test_a_rule_that_is_paused_keeps_its_state_and_computes_nothing(tmp_path):
    found = workload_of(job(tmp_path, SHORT | {"state": "PAUSE"}), asked())
    assert [(each.features, each.horizon_ms) for each in found.groupings] == [(0, 25 * HOUR_MS)]


def test_buckets_follow_from_the_precision(tmp_path):
    precision = {"tail": "1h", "resolution": "1m", "tiers": [{"after": "5h", "resolution": "10m"}]}
    found = workload_of(job(tmp_path, SHORT, engine={"precision": precision, "shards": 4}), asked())
    (one,) = found.groupings
    assert one.tail_ms == HOUR_MS
    assert one.widths == (Width(HOUR_MS, 5 * HOUR_MS, 60_000), Width(5 * HOUR_MS, 25 * HOUR_MS, 600_000))
    assert found.tasks == 4


def test_batches_of_a_topic_are_bounded_and_begin_at_the_interval(tmp_path):
    topic = {"kind": "kafka", "topic": "in", "max_offsets_per_trigger": 500}
    changes = {"kafka": {"bootstrap_servers": "h:1"}, "trigger": {"interval": "2s"}, "partitions": 3}
    found = workload_of(job(tmp_path, source=topic, **changes), asked())
    assert (found.most_rows, found.interval_s, found.tasks, found.is_text) == (500, 2.0, 3, True)


@pytest.mark.parametrize(
    ("spark", "cluster"),
    [
        ({}, Cluster(8, 1, 1 << 35)),
        ({"spark.master": "local"}, Cluster(1, 1, 1 << 35)),
        ({"spark.master": "local[3]"}, Cluster(3, 1, 1 << 35)),
        ({"spark.master": "local[*, 2]"}, Cluster(8, 1, 1 << 35)),
        ({"spark.master": "local-cluster[3, 2, 1024]"}, Cluster(6, 3)),
        (
            {"spark.master": "spark://h:7077", "spark.executor.instances": 10, "spark.executor.cores": 4},
            Cluster(40, 10),
        ),
        ({"spark.master": "spark://h:7077", "spark.cores.max": "32", "spark.executor.cores": "8"}, Cluster(32, 4)),
        ({"spark.master": "yarn", "spark.executor.instances": 5}, Cluster(5, 5)),
        (
            {"spark.master": "yarn", "spark.executor.instances": 2, "spark.executor.memory": "20g"},
            Cluster(2, 2, 2 * 22 << 30),
        ),
        (
            {
                "spark.master": "yarn",
                "spark.executor.instances": 3,
                "spark.executor.memory": "1024m",
                "spark.executor.memoryOverhead": "2048",
            },
            Cluster(3, 3, 9 << 30),
        ),
    ],
)
def test_cores_are_those_that_spark_will_find(spark, cluster):
    assert cluster_of(spark, asked()) == cluster


def test_cores_may_be_given():
    assert cluster_of({"spark.master": "local[2]"}, asked(cores=16)) == Cluster(16)
    assert cluster_of({"spark.master": "yarn", "spark.executor.cores": 4}, asked(cores=16)) == Cluster(16, 4)


def test_a_cluster_that_does_not_say_how_large_it_is_is_asked_for(as_worded):
    with pytest.raises(ConfigurationError, check=as_worded):
        cluster_of({"spark.master": "yarn", "spark.executor.cores": 4}, asked())


@pytest.mark.parametrize("master", ["local[0]", "local-cluster[0,1,1024]", "local-cluster[2,0,1024]"])
def test_no_cores_are_no_cluster(master):
    with pytest.raises(ConfigurationError, match="does not say how many cores"):
        cluster_of({"spark.master": master}, asked())


@pytest.mark.parametrize("keys", [["card=5", "1k"], ["payerId=5"]])
def test_keys_must_fit_the_groupings(keys, tmp_path, as_worded):
    with pytest.raises(ConfigurationError, check=as_worded):
        workload_of(job(tmp_path), asked(*keys))


@pytest.mark.parametrize("state", ["DRAFT", "DELETE"])
def test_rules_of_which_none_is_in_force_are_refused(state, tmp_path, as_worded):
    with pytest.raises(ConfigurationError, check=as_worded):
        workload_of(job(tmp_path, SHORT | {"state": state}), asked())


def test_rules_elsewhere_are_asked_for(tmp_path, as_worded):
    with pytest.raises(ConfigurationError, check=as_worded):
        workload_of(job(tmp_path, rules={"table": "rules"}), asked())


def test_what_the_numbers_lack_is_said(tmp_path, as_worded):
    spanning = FEATURES | {
        "rule_id": "both",
        "features": {**FEATURES["features"], "recent": {"function": "count", "window": "1h", "group_by": ["payerId"]}},
    }
    on_alerts = {
        "rule_id": "alerts",
        "on": "alerts",
        "group_by": ["payerId"],
        "aggregate": {"function": "count"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": 3},
    }
    filtered = SHORT | {"rule_id": "some", "where": "paymentAmount > 5"}
    day = {"function": "count", "every": "1d"}
    habits = {
        "rule_id": "habits",
        "group_by": ["payerId"],
        "features": {
            "alike": {"function": "count", "window": "1h", "where": "paymentAmount > this.paymentAmount"},
            "place": {"function": "rank", "of": "beneficiaryId", "window": "1h"},
            "before": {"function": "previous", "of": "beneficiaryId", "window": "1h"},
            "usual": {"function": "avg", "of": day, "window": "7d"},
            "paid": {"function": "sequence", "steps": ["paymentAmount < 2", "paymentAmount > 9"], "window": "1h"},
            "received": {"function": "count", "window": "1h", "group_by": ["payerId AS beneficiaryId"]},
            "warned": {"function": "count", "window": "1h", "on": "alerts"},
        },
        "when": "alike > usual OR place > 1 OR before = 'x' OR paid OR received > 1 OR warned > 1",
    }
    found = job(tmp_path, spanning, on_alerts, filtered, habits, output={"path": "tables", "evaluations": True})
    assert as_worded("\n".join(notes_of(found)))
    assert len(workload_of(found, asked()).groupings) == 4
