"""A job on Kafka whose checkpoint, audit and archive lie in an object store."""

from pathlib import Path

import pytest

from tests.kafka.audit_job import AuditJob
from tests.kafka.conftest import broker
from tests.spark.command import run_command
from tests.spark.job_folder import read_table
from tests.spark.payments import payments
from tests.stores.server import Store

pytestmark = pytest.mark.spark

__all__ = ["broker"]


@pytest.mark.parametrize("output", ["kafka", pytest.param("delta", marks=pytest.mark.nightly)])
def test_the_audit_of_a_job_lies_in_a_store_and_its_replay_says_the_same(
    broker, store: Store, bucket: str, tmp_path: Path, output: str
):
    where = f"s3://{bucket}/job"
    changes = {} if output == "kafka" else {"output": {"path": f"{where}/tables", "evaluations": True}}
    job = AuditJob(
        broker,
        tmp_path,
        checkpoint=f"{where}/checkpoint",
        audit={"path": f"{where}/audit", "checkpoint": f"{where}/audit-checkpoint"},
        archive={"path": f"{where}/archive"},
        trigger={"available_now": True},
        **changes,
    )
    results = store.folder / bucket / "job" / ("audit" if output == "kafka" else "tables")
    for part in (payments(60)[:30], payments(60)[30:]):
        job.send(part)
        ran = run_command("run", job.conf, "--audit")
        assert ran.returncode == 0, ran.stderr

    alerts = read_table(results / "alerts")
    assert len({row["alert_id"] for row in alerts}) == len(alerts) > 30
    ran = run_command("replay", job.conf)
    assert ran.returncode == 0, ran.stderr
    assert f"{len(alerts):,}" in ran.stdout
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == []
