"""Files for Prometheus and Grafana, what is wrong with settings of metrics, and the log for machines."""

import json
from pathlib import Path

import pytest
import yaml

from buckets.cli.progress import BatchProgress
from buckets.cli.run import JsonLog, errors_in, hide_secrets, log_of
from buckets.config.job import load_job
from buckets.config.settings import MetricsSettings
from buckets.errors import BucketsError, Outage
from buckets.exit_codes import MISUSED
from buckets.kafka.local_broker import free_port
from buckets.metrics.endpoint import metrics_endpoint
from buckets.resources import DEFAULT_SCHEMA, resource
from buckets.rules.revision import Refusal
from tests.core.done_batches import batch

RULES = """\
rules:
  - rule_id: big-sum
    group_by: [payerId]
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">", value: 10}
"""


def written(folder: Path, **more: object) -> Path:
    """A configuration with further parts, and its rules."""
    (folder / "rules.yaml").write_text(RULES)
    (folder / "in").mkdir(exist_ok=True)
    conf = {
        "source": {"kind": "json", "path": "in"},
        "schema": str(DEFAULT_SCHEMA),
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
    } | more
    path = folder / "conf.yaml"
    path.write_text(yaml.safe_dump(conf, sort_keys=False))
    return path


@pytest.mark.parametrize(
    "metrics",
    [
        {"port": 0}, {"port": 65_536}, {"port": "http"}, {}, {"port": 9464, "path": "/m"},
        {"port": 9464, "ready_lag": -1}, {"port": 9464, "host": ""}, 9464,
    ],
    ids=["0", "65536", "no number", "no port", "unknown key", "negative lag", "no host", "no mapping"],
)  # fmt: skip
def test_settings_that_are_wrong_are_refused_in_one_line(buckets, tmp_path, as_worded, metrics):
    ran = buckets("run", written(tmp_path, metrics=metrics))
    assert ran.code == MISUSED
    assert as_worded(ran.err)


def test_job_and_audit_may_not_answer_at_one_port(buckets, tmp_path, as_worded):
    changes = {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "source": {"kind": "kafka", "topic": "t"},
        "output": {"kind": "kafka"},
        "audit": {"path": "audit", "checkpoint": "audit-checkpoint", "metrics": {"port": 9464}},
        "metrics": {"port": 9464},
    }
    ran = buckets("audit", written(tmp_path, **changes))
    assert ran.code == MISUSED
    assert as_worded(ran.err)


def test_a_port_in_use_is_said_before_anything_starts(buckets, tmp_path, as_worded):
    port = free_port()
    with metrics_endpoint(MetricsSettings(port=port)):
        ran = buckets("run", written(tmp_path, metrics={"port": 9}), "--metrics-port", port)
    assert ran.code == 1
    assert as_worded(ran.err)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_port_that_is_none_is_a_wrong_option(buckets, tmp_path, as_worded, port):
    ran = buckets("run", written(tmp_path), "--metrics-port", port)
    assert ran.code == 2
    assert as_worded(ran.err)


# Files


def test_the_dashboard_is_printed_as_it_is(buckets):
    ran = buckets("metrics", "dashboard")
    assert (ran.code, ran.out) == (0, resource("metrics/dashboard.json").read_text(encoding="utf-8"))


def test_the_alert_rules_are_printed_as_they_are(buckets):
    ran = buckets("metrics", "rules")
    assert (ran.code, ran.out) == (0, resource("metrics/alert_rules.yaml").read_text(encoding="utf-8"))


# The log for machines


def lines_of(text: str) -> list[dict]:
    """The objects of a log, without their times, which are all of one form."""
    objects = [json.loads(line) for line in text.splitlines()]
    assert all(len(each.pop("time")) == len("2026-01-01T00:00:00.000Z") for each in objects)
    return objects


def test_a_fault_is_an_object_on_one_line(buckets, tmp_path):
    ran = buckets("run", tmp_path / "none.yaml", "--log-format", "json")
    (line,) = lines_of(ran.err)
    assert (ran.code, line["level"]) == (MISUSED, "error")
    assert "none.yaml" in line["message"]


def test_a_log_in_another_format_is_a_wrong_option(buckets, tmp_path, as_worded):
    ran = buckets("run", tmp_path / "none.yaml", "--log-format", "xml")
    assert ran.code == 2
    assert as_worded(ran.err)


def test_lines_say_of_which_batch_and_rules_they_are_and_how_bad_it_is(capsys):
    progress = BatchProgress(JsonLog())
    progress.on_phase("starting Spark")
    report = batch(batch_id=7)
    progress.on_batch(report.account, report.duration_s)
    progress.on_refused([Refusal("rules[0]:3", "no such field", {})])
    progress.on_outage(Outage("no broker answers"))
    progress.say('a "line"\nof two')
    of_batch = {"batch": 7, "ruleset_version": 1}
    assert lines_of(capsys.readouterr().err) == [
        {"level": "info", "message": "starting Spark"},
        {"level": "info", "message": "batch 7: 10 events, 0 alerts, 100 events/s", **of_batch},
        {
            "level": "warning",
            "message": "a change of the rules is not made (rules[0]:3): no such field",
            **of_batch,
        },
        {"level": "warning", "message": "no broker answers; trying again", **of_batch},
        {"level": "info", "message": 'a "line"\nof two', **of_batch},
    ]


class CodedError(BucketsError):
    """A fault with a code."""

    code = "B001"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (CodedError("no disk"), 1, {"level": "error", "message": "no disk", "code": "B001"}),
        (BucketsError("no disk"), 1, {"level": "error", "message": "no disk"}),
        (KeyboardInterrupt(), 130, {"level": "warning", "message": "interrupted: nothing is left half done"}),
        (ZeroDivisionError("by zero"), 1, {"level": "error", "message": "ZeroDivisionError: by zero"}),
    ],
    ids=["with a code", "without", "interrupt", "defect"],
)
def test_what_ends_a_job_is_in_its_log(capsys, error, code, told):
    with pytest.raises(SystemExit) as ended, errors_in(JsonLog()):
        raise error
    (line,) = lines_of(capsys.readouterr().err)
    assert ended.value.code == code
    assert ("trace" in line) == isinstance(error, ZeroDivisionError)
    assert {name: value for name, value in line.items() if name != "trace"} == told


def test_passwords_are_never_in_the_log(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "hush-hush")
    login = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "ann", "password": "${KAFKA_PASSWORD}"}
    changes = {
        "kafka": {"bootstrap_servers": "localhost:9092", "security": login},
        "source": {"kind": "kafka", "topic": "t"},
        "output": {"kind": "kafka"},
    }
    log = log_of("json")
    hide_secrets(log, load_job(written(tmp_path, **changes)))
    log.tell("sasl.password=hush-hush", facts={"detail": "hush-hush"})
    defect = ZeroDivisionError("hush-hush")
    with pytest.raises(SystemExit), errors_in(log):
        raise defect
    text = capsys.readouterr().err
    assert "hush" not in text
    assert lines_of(text)[0] == {"level": "info", "message": "sasl.password=***", "detail": "***"}
