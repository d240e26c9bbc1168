"""Checkpoint and folder of an audit: what belongs together, and starts that died half way."""

from pathlib import Path

import pytest

from buckets.audit.folder import AuditFolder
from buckets.audit.tables import TRANSACTIONS, UNREADABLE, audit_tables
from buckets.config.settings import AuditSettings
from buckets.errors import BucketsError
from buckets.files import partial_of
from buckets.outputs import columns
from tests.core.checkpoints import write_sealed, written_in

TOPICS = {"in": TRANSACTIONS, "fraud": columns.ALERTS}


def folder(root: Path, path: str = "tables", checkpoint: str = "checkpoint") -> AuditFolder:
    return AuditFolder(AuditSettings(path=str(root / path), checkpoint=str(root / checkpoint)))


def make_table(audit_folder: AuditFolder, name: str) -> None:
    log = audit_folder.tables / name / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{}")


def make_tables(audit_folder: AuditFolder) -> None:
    for name in (*TOPICS.values(), UNREADABLE):
        make_table(audit_folder, name)


def run_a_batch(audit_folder: AuditFolder) -> None:
    offsets = audit_folder.spark_checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("{}")


def test_the_identity_is_the_same_at_every_start(tmp_path):
    identity = folder(tmp_path).open()
    assert folder(tmp_path).open() == identity
    make_tables(folder(tmp_path))
    folder(tmp_path).keep_topics(TOPICS)
    run_a_batch(folder(tmp_path))
    assert folder(tmp_path).open() == identity
    assert folder(tmp_path).topics({}) == TOPICS


def test_a_start_that_died_half_way_is_gone_on_with(tmp_path):
    audit_folder = folder(tmp_path)
    audit = tmp_path / "checkpoint" / "buckets" / "audit.json"
    partial_of(audit).parent.mkdir(parents=True)
    partial_of(audit).write_text('{"form')
    identity = audit_folder.open()
    (tmp_path / "tables" / "_buckets.json").unlink()
    partial_of(tmp_path / "tables" / "_buckets.json").write_text("{")
    assert audit_folder.open() == identity
    (tmp_path / "tables" / columns.ALERTS / "_delta_log").mkdir(parents=True)
    assert not audit_folder.has_table(columns.ALERTS)
    assert audit_folder.open() == identity


def test_a_new_topic_whose_table_was_not_made_before_the_crash_is_no_fault(tmp_path):
    audit_folder = folder(tmp_path)
    audit_folder.open()
    make_tables(audit_folder)
    audit_folder.keep_topics(TOPICS)
    run_a_batch(audit_folder)
    wanted = TOPICS | {"more": columns.EVALUATIONS}
    assert audit_folder.topics(wanted) == wanted
    audit_folder.check()
    assert folder(tmp_path).topics(TOPICS) == TOPICS


def test_a_table_that_is_gone_is_told(tmp_path, as_worded):
    audit_folder = folder(tmp_path)
    audit_folder.open()
    make_tables(audit_folder)
    audit_folder.keep_topics(TOPICS)
    run_a_batch(audit_folder)
    (tmp_path / "tables" / columns.ALERTS / "_delta_log" / "00000000000000000000.json").unlink()
    with pytest.raises(BucketsError, check=as_worded):
        audit_folder.open()


def test_an_audit_of_messages_alone_has_their_table_and_takes_others_later(tmp_path):
    audit_folder, alone = folder(tmp_path), {"in": TRANSACTIONS}
    audit_folder.open()
    make_table(audit_folder, TRANSACTIONS)
    audit_folder.keep_topics(alone)
    run_a_batch(audit_folder)
    audit_folder.check()
    verdicts = alone | {"said": columns.VERDICTS}
    assert list(audit_tables(verdicts.values())) == [columns.VERDICTS, TRANSACTIONS, UNREADABLE]
    for name in (columns.VERDICTS, UNREADABLE):
        make_table(audit_folder, name)
    audit_folder.keep_topics(audit_folder.topics(verdicts))
    audit_folder.check()


def test_a_topic_that_changes_its_role_is_told(tmp_path, as_worded):
    audit_folder = folder(tmp_path)
    audit_folder.open()
    audit_folder.keep_topics(TOPICS)
    with pytest.raises(BucketsError, check=as_worded):
        audit_folder.topics({"fraud": columns.COLLISIONS})


@pytest.mark.parametrize(
    ("path", "checkpoint"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/../b", "b/c")], ids=lambda each: each
)
def test_folders_that_lie_in_each_other_are_refused(tmp_path, path, checkpoint, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        folder(tmp_path, path, checkpoint).open()


def test_tables_of_another_checkpoint_are_refused(tmp_path, as_worded):
    folder(tmp_path).open()
    with pytest.raises(BucketsError, check=as_worded):
        folder(tmp_path, checkpoint="other").open()


def test_a_checkpoint_of_a_later_release_is_refused(tmp_path, as_worded):
    folder(tmp_path).open()
    audit = tmp_path / "checkpoint" / "buckets" / "audit.json"
    write_sealed(audit, written_in(audit) | {"format": 2}, tmp_path / "checkpoint")
    with pytest.raises(BucketsError, check=as_worded):
        folder(tmp_path).open()
