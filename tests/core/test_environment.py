"""Environment variables in a configuration: one way for all of it, and no secret that is the text of a variable."""

from pathlib import Path

import pytest
import yaml

from buckets.config.environment import secrets_of
from buckets.config.job import check_configuration
from buckets.config.settings import JobSettings
from buckets.errors import BucketsError
from buckets.yaml_file import load_model

CONF = {
    "source": {"kind": "kafka", "topics": [{"name": "payments"}]},
    "schema": "schema.yaml",
    "rules": "rules.yaml",
    "checkpoint": "checkpoint",
    "output": {"path": "tables", "webhook": {"url": "https://cases.example.com", "secret": "SECRET"}},
    "console": {"token": "SECRET"},
    "kafka": {
        "bootstrap_servers": "localhost:9092",
        "security": {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "ann", "password": "SECRET"},
        "registry": {"url": "https://registry", "username": "ann", "password": "SECRET"},
    },
    "spark": {"spark.hadoop.fs.s3a.secret.key": "SECRET", "spark.sql.shuffle.partitions": 2},
}
VALUE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def read(tmp_path: Path, secret: str, **changes) -> JobSettings:
    path = tmp_path / "conf.yaml"
    path.write_text(yaml.safe_dump(CONF | changes).replace("SECRET", secret))
    return load_model(path, JobSettings, "configuration")


def test_each_secret_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HIDDEN", VALUE)
    settings = read(tmp_path, "${HIDDEN}")
    assert list(secrets_of(settings)) == [VALUE] * 5
    assert settings == read(tmp_path, VALUE)
    monkeypatch.setenv("END", VALUE[10:])
    assert settings == read(tmp_path, f"{VALUE[:10]}${{END}}")


def test_the_value_of_a_variable_may_have_a_dollar_and_is_not_replaced_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HIDDEN", "pa$$word ${HOME} $HOME")
    settings = read(tmp_path, "${HIDDEN}", output={"path": "tables"})
    assert set(secrets_of(settings)) == {"pa$$word ${HOME} $HOME"}


@pytest.mark.parametrize("written", ["$HIDDEN", "${HID-DEN}", "${HIDDEN:-none}", "${HIDDEN", "${HIDDEN}$", "pa$$word"])
def test_a_dollar_that_is_left_over_in_a_secret_is_refused(tmp_path, monkeypatch, written):
    monkeypatch.setenv("HIDDEN", VALUE)
    with pytest.raises(BucketsError, match=r"has a \$ that begins no environment variable.*\(and 4 more\)$") as error:
        read(tmp_path, written)
    assert "\n" not in error.value.message


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_or_empty_is_refused(tmp_path, monkeypatch, value, as_worded):
    monkeypatch.delenv("HIDDEN", raising=False)
    if value is not None:
        monkeypatch.setenv("HIDDEN", value)
    with pytest.raises(BucketsError, check=as_worded):
        read(tmp_path, "${HIDDEN}")
    with pytest.raises(BucketsError, check=as_worded):
        read(tmp_path, VALUE, checkpoint="${HIDDEN}/checkpoint")


def test_a_value_that_does_not_fit_is_said_to_come_from_its_variable(tmp_path, monkeypatch, as_worded):
    monkeypatch.setenv("HIDDEN", "short")
    with pytest.raises(BucketsError, check=as_worded):
        read(tmp_path, VALUE, console={"token": "${HIDDEN}"})


def test_a_secret_that_is_empty_is_refused(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        read(tmp_path, "''")


def test_any_other_text_may_name_variables_too(tmp_path, monkeypatch):
    for name, value in {"FOLDER": "/data", "TOPIC": "card", "PORT": "9464", "NAME": "buckets.example.org"}.items():
        monkeypatch.setenv(name, value)
    settings = read(
        tmp_path,
        VALUE,
        source={"kind": "kafka", "topics": ["${TOPIC}", {"name": "${TOPIC}-history", "judge": False}]},
        checkpoint="${FOLDER}/checkpoint",
        rules="${FOLDER}/rules",
        lists={"payroll": {"kind": "file", "path": "${FOLDER}/${TOPIC}.csv"}},
        metrics={"port": "${PORT}"},
        console={"names": ["${NAME}"]},
        spark={"spark.executor.memory": "${TOPIC}", "spark.x": "${env:TOPIC} ${spark.y}"},
    )
    assert settings.source.all_topics == ("card", "card-history")
    assert (settings.checkpoint, settings.rules.path) == ("/data/checkpoint", "/data/rules")
    assert settings.lists["payroll"].path == "/data/card.csv"
    assert settings.metrics is not None
    assert settings.metrics.port == 9464
    assert settings.console.names == ("buckets.example.org",)
    assert settings.spark == {"spark.executor.memory": "card", "spark.x": "${env:TOPIC} ${spark.y}"}


def test_a_check_finds_the_files_that_variables_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path))
    (tmp_path / "conf.yaml").write_text(
        yaml.safe_dump({"schema": "${FOLDER}/schema.yaml", "rules": "${FOLDER}/r.yaml"})
    )
    _, answers = check_configuration(tmp_path / "conf.yaml")
    faults = [fault for answer in answers[1:] for fault in answer.faults]
    assert [fault.partition(": no such")[0] for fault in faults] == [
        f"event schema {tmp_path}/schema.yaml",
        f"rule file {tmp_path}/r.yaml",
    ]
