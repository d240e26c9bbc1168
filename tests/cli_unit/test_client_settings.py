"""Bad and empty values of each setting of a client: one line from `check` and from `run`, and never a traceback."""

import json
import re
from pathlib import Path

import pytest
import yaml

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.exit_codes import FAILED, MISUSED
from buckets.kafka.faults import Broker
from buckets.kafka.local_broker import free_port
from buckets.kafka.sender import Sender
from buckets.kafka.topics import topic_sizes
from tests.own_certificate import own_certificate

LOGIN = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "ann", "password": "secret word"}
TLS = {"protocol": "SSL"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EMPTY = ["", " ", "${EMPTY}", "a\0b", "of a file\n"]
BAD_FILES = [*EMPTY, "nowhere.pem", "text.pem", "binary.pem", "."]
REGISTRY = {"url": "http://127.0.0.1:1"}
WEBHOOK = {"url": "http://127.0.0.1:1/alerts", "secret": SECRET}
BAD_ADDRESSES = [
    *EMPTY,
    "nonsense",
    "http://",
    "ftp://x",
    "http://a b",
    "http://a..b",
    f"http://{'a' * 64}.b",
    "http://x:0",
]
OPTIONS = {
    "kafka.bootstrap_servers": [*EMPTY, "localhost", "a:b", ":9092", "localhost:99999", ","],
    "kafka.outage_patience": ["", "fast", "-1s"],
    "kafka.delivery_timeout": ["", "1s", "40d", "fast"],
    "kafka.isolation": ["", "dirty"],
    "kafka.security.protocol": ["", "TLS"],
    "kafka.security.mechanism": ["", "GSSAPI"],
    "kafka.security.username": EMPTY,
    "kafka.security.password": EMPTY,
    "kafka.security.ca_file": BAD_FILES,
    "kafka.security.certificate_file": BAD_FILES,
    "kafka.security.key_file": [*BAD_FILES, "another.pem"],
    "kafka.security.key_password": [*EMPTY, "wrong"],
    "kafka.registry.url": BAD_ADDRESSES,
    "kafka.registry.username": EMPTY,
    "kafka.registry.password": EMPTY,
    "kafka.registry.ca_file": BAD_FILES,
    "output.webhook.url": BAD_ADDRESSES,
    "output.webhook.secret": [*EMPTY, "secret", "whsec_", "whsec_ä"],
    "output.webhook.timeout": ["", "1ms", "2h"],
    "output.webhook.connections": [0, 65, "many", ""],
    "output.webhook.give_up_after": ["", "never"],
    "output.webhook.ca_file": BAD_FILES,
}
"""By setting, the values with which no client can be made, or none that reaches anything."""


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """A configuration on Kafka with a login, a registry and a webhook."""
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.chdir(tmp_path)
    own_certificate(tmp_path)
    (tmp_path / "another").mkdir()
    own_certificate(tmp_path / "another")
    (tmp_path / "another" / "server.pem").rename(tmp_path / "another.pem")
    (tmp_path / "text.pem").write_text("certificate")
    (tmp_path / "binary.pem").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: t\n")
    return tmp_path / "conf.yaml"


def write(conf: Path, setting: str, value: object) -> None:
    """Write the configuration with one value in the place of another one."""
    is_tls = setting.endswith("_file") or setting.endswith("key_password")
    security = (
        TLS | {"ca_file": "ca.pem", "certificate_file": "server.pem", "key_file": "server.pem"} if is_tls else LOGIN
    )
    if setting.endswith("key_password"):
        security |= {"key_file": "another.pem"} if value == "wrong" else {}
    data = {
        "kafka": {"bootstrap_servers": f"127.0.0.1:{free_port()}", "security": security, "registry": REGISTRY},
        "source": {"kind": "kafka", "topic": "payments"},
        "schema": "schema.yaml",
        "rules": {"topic": "rules"},
        "checkpoint": "checkpoint",
        "output": {"kind": "kafka", "webhook": WEBHOOK},
    }
    if setting.startswith("kafka.registry") and "word" not in setting:
        data["kafka"]["registry"] = REGISTRY | {"username": "ann", "password": "secret word"}
    *path, name = setting.split(".")
    part = data
    for step in path:
        part[step] = dict(part[step])
        part = part[step]
    part[name] = value
    conf.write_text(yaml.safe_dump(data, sort_keys=False))


@pytest.mark.parametrize("setting", OPTIONS)
def test_a_bad_value_of_a_setting_is_one_line_from_check_and_from_run(buckets, conf, setting):
    for value in OPTIONS[setting]:
        write(conf, setting, value)
        checked = buckets("check", conf, "--json")
        assert (checked.code, checked.err) == (FAILED, ""), (value, checked)
        faults = [fault for each in json.loads(checked.out)["things"] for fault in each["faults"]]
        assert len(faults) == 1, (value, faults)
        ran = buckets("run", conf)
        assert (ran.code, ran.out) == (MISUSED, ""), (value, ran)
        assert ran.err.count("\n") == 1, (value, ran)
        part = setting.rpartition(".")[0]
        for line in (faults[0], ran.err):
            assert re.search(rf"conf.yaml:\d+: {part}\b", line), (value, line)
            assert "secret word" not in line
            assert SECRET not in line
            assert "Traceback" not in line


@pytest.fixture
def refused_settings(monkeypatch):
    """Settings that a configuration takes and the client's library does not, as a later one of its releases may."""
    monkeypatch.setattr(KafkaSettings, "librdkafka", lambda kafka: {"secret word": "x"})


@pytest.mark.usefixtures("refused_settings")
def test_settings_that_only_the_client_refuses_are_one_line_from_check_and_from_run(buckets, conf):
    write(conf, "kafka.security.username", "ann")
    checked = buckets("check", conf, "--json")
    assert (checked.code, checked.err) == (FAILED, "")
    things = {each["thing"]: each["faults"] for each in json.loads(checked.out)["things"]}
    ran = buckets("run", conf)
    assert (ran.code, ran.err.count("\n")) == (FAILED, 1)
    for line in (*things["kafka"], ran.err):
        assert "no client can be made of these settings (No such configuration property" in line
        assert "secret word" not in line


@pytest.mark.usefixtures("refused_settings")
@pytest.mark.parametrize("make", [Sender, topic_sizes, Broker])
def test_every_client_says_its_faults_in_a_line(make, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as refused:
        make(KafkaSettings.model_validate({"bootstrap_servers": "127.0.0.1:1", "security": LOGIN}))
    assert "secret word" not in str(refused.value)


def test_clients_of_kafka_are_made_in_one_place():
    made = re.compile(r"\b(Consumer|Producer|AdminClient)\(")
    files = Path("buckets").resolve().rglob("*.py")
    elsewhere = [file.name for file in files if made.search(file.read_text(encoding="utf-8"))]
    assert elsewhere == []
