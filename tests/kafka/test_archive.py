"""The archive of a job with topics."""

import pyarrow as pa
import pytest
import yaml

from buckets.archive.archive import by_batch
from buckets.archive.history import History
from buckets.config.job import load_job
from buckets.history.replay.replay import replay_history
from buckets.history.scoring import ArchivePiece, score_pieces
from buckets.outputs.columns import ALERTS
from buckets.spark.prepared_job import Listener, prepare
from tests.kafka.audit_job import AuditJob
from tests.spark.payments import payments

pytestmark = pytest.mark.spark


def test_messages_are_archived_and_score_the_same(broker, spark, tmp_path):
    job = AuditJob(broker, tmp_path, partitions=2, trigger={"available_now": True}, archive={"path": "archive"})
    settings = yaml.safe_load(job.conf.read_text())
    settings["source"]["max_offsets_per_trigger"] = 25
    job.send([payment | {"id": f"early-{payment['id']}"} for payment in payments(10)])
    settings["source"]["starting_offsets"] = "latest"
    job.conf.write_text(yaml.safe_dump(settings))
    prepare(load_job(job.conf)).query(spark, Listener()).run(None)
    job.send(payments(80))
    broker.produce(job.topic, [b"\xff{", "no payment"], ["x", "y"])
    prepare(load_job(job.conf)).query(spark, Listener()).run(None)

    history = History.open(load_job(job.conf))

    assert history.archive.end() == 82
    table = pa.concat_tables(history.archive.tables())
    assert [reason for reason in table["_fault"].to_pylist() if reason] != []
    assert None not in table["_ingested_ms"].to_pylist()
    cuts = {cut.batch_id: cut for cut in history.recorded.cuts}
    assert len(cuts) >= 4
    pieces = [
        ArchivePiece(part, history.recorded.rule_set(cuts[batch].ruleset_version), history.recorded.terms(batch))
        for batch, part in by_batch(history.archive.tables())
    ]
    found = [row for scored in score_pieces(pieces) for row in scored.table(ALERTS).to_pylist()]
    again = sorted((row["alert_id"], row["source"], row["position"], row["warm"]) for row in found)
    job.audit(spark)
    assert again == sorted((row["alert_id"], row["source"], row["position"], row["warm"]) for row in job.rows(ALERTS))
    assert again
    replayed = replay_history(history)
    joined = replay_history(history, cuts="joined")
    assert (replayed.differences, joined.differences) == ([], [])
    assert replayed.compared[ALERTS] == joined.compared[ALERTS] == len(again)
