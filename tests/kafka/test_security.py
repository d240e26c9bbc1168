"""TLS and logins from end to end: both clients, secrets from the environment, nothing of them shown."""

import subprocess
from pathlib import Path

import pytest
import yaml

from buckets.java.java import find_java
from buckets.outputs import columns
from tests.kafka.audit_job import AuditJob, assert_tables_hold_topics
from tests.kafka.broker import Keystore, TestBroker
from tests.kafka.kafka_job import comparable
from tests.spark.command import one_line, run_command
from tests.spark.payments import payments

pytestmark = pytest.mark.spark
USER, PASSWORD = "ada", "open sesame é"


def keytool(*arguments: str | Path) -> str:
    """Run the tool for certificates that is beside Java."""
    command = [str(find_java().with_name("keytool")), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def keystore(folder: Path, name: str) -> Keystore:
    """A certificate for this machine, signed by itself."""
    made = Keystore(folder / f"{name}.p12", "of the keystore", folder / f"{name}.pem")
    key = ("-genkeypair", "-keyalg", "EC", "-validity", "2", "-dname", f"CN={name}", "-ext", "san=ip:127.0.0.1")
    file = ("-alias", "broker", "-storetype", "PKCS12", "-keystore", made.path, "-storepass", made.password)
    keytool(*key, *file)
    made.ca_file.write_text(keytool("-exportcert", "-rfc", *file), encoding="utf-8")
    return made


@pytest.fixture
def secured(own_broker, tmp_path) -> TestBroker:
    """A broker with TLS and a login."""
    return own_broker(users={USER: PASSWORD}, keystore=keystore(tmp_path, "broker"))


@pytest.fixture
def job(secured, tmp_path, monkeypatch) -> AuditJob:
    """A job that reaches it, with its secrets in the environment; what it writes aside goes to `tmp_path / "tmp"`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("SCORING_USER", USER)
    monkeypatch.setenv("SCORING_PASSWORD", PASSWORD)
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "PLAIN",
        "username": "${SCORING_USER}",
        "password": "${SCORING_PASSWORD}",
        "ca_file": str(tmp_path / "broker.pem"),
    }
    kafka = {"bootstrap_servers": secured.kafka.bootstrap_servers, "security": security}
    return AuditJob(secured, tmp_path / "job", kafka=kafka, trigger={"available_now": True})


def test_scoring_and_audit_over_tls_with_a_login_and_no_secret_is_written_anywhere(job, tmp_path):
    job.send(payments(60))
    done = run_command("run", job.conf, "--audit")

    assert done.returncode == 0, done.stderr
    assert comparable(job.messages(columns.ALERTS)) == comparable(job.replay({})[columns.ALERTS]) != []
    assert_tables_hold_topics(job)
    written = [path for folder in ("tmp", "job") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert any("spark" in path.name for path in written)
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert PASSWORD not in done.stdout + done.stderr


def test_a_wrong_password_and_a_certificate_that_is_not_trusted_are_one_line_each(job, tmp_path, monkeypatch):
    monkeypatch.setenv("SCORING_PASSWORD", "not the one")
    said = one_line(run_command("run", job.conf))
    assert "the login is refused; correct username, password" in said
    assert "not the one" not in said

    conf = yaml.safe_load(job.conf.read_text())
    conf["kafka"]["security"]["ca_file"] = str(keystore(tmp_path, "another").ca_file)
    job.conf.write_text(yaml.safe_dump(conf))
    said = one_line(run_command("run", job.conf))
    assert "no TLS connection (" in said
    assert "correct ca_file" in said
    assert not job.checkpoint.exists()
