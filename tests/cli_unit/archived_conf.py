"""A configuration of a job that has run and is archived, made without Spark; its source is gone."""

from pathlib import Path
from unittest import mock

import yaml

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.engine import EngineSettings
from tests.core.archived_job import ArchivedJob, archive_writer
from tests.core.examples import SCHEMA, rule, written_rule

ROWS = [
    {"id": f"e{n}", "at": 1_700_000_000_000 + n * 60_000, "payer": "p", "amount": "5.00", "position": n}
    for n in range(10)
]


def archived_conf(folder: Path, archived: range = range(2)) -> Path:
    """Write it into a folder, with ten events of two batches and the rules that scored them in `rules.yaml`.

    Of the batches only some may be archived.
    """
    identity = Checkpoint(folder / "checkpoint").job.open(
        CheckpointIdentity(f"json {folder / 'gone'}", SCHEMA, EngineSettings())
    )
    job = ArchivedJob(folder, SCHEMA)
    job.take([rule()])
    writer = archive_writer(job.archive.folder, identity=identity)
    for number, start in enumerate((0, 5)):
        job.writer = writer if number in archived else mock.Mock()
        job.batch(ROWS[start : start + 5])
    OwnedFolder(job.archive.folder, "archive.path").take(identity)
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json", exclude_none=True)))
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": [written_rule()]}))
    written = {
        "source": {"kind": "json", "path": "gone"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "archive": {"path": "archive"},
    }
    conf = folder / "conf.yaml"
    conf.write_text(yaml.safe_dump(written))
    return conf
