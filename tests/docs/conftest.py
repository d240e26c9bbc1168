"""Folders in which the examples of a page are run."""

import shutil
import sys
from pathlib import Path

import pytest

from buckets.cli.commands import exit_code
from buckets.resources import resource
from tests.cli_unit.conftest import buckets
from tests.own_certificate import own_certificate

__all__ = ["buckets", "folder", "payments"]

FLINK_TRANSACTION = (
    '{"transactionId": 1, "eventTime": 1769723989352, "payeeId": 7, "beneficiaryId": 9, "paymentAmount": 20.5, '
    '"paymentType": "CSH"}\n'
)


@pytest.fixture(scope="session")
def payments(tmp_path_factory) -> Path:
    """Generated payments, as JSON lines and as Parquet, with the truth beside them."""
    folder = tmp_path_factory.mktemp("payments")
    for name in ("day.jsonl", "day.parquet"):
        with pytest.MonkeyPatch.context() as patch:
            words = ["generate", "--out", str(folder / name), "--transactions", "1000", "--overwrite"]
            patch.setattr(sys, "argv", ["buckets", *words])
            assert exit_code() == 0
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch, payments, buckets) -> Path:
    """The folder of a reader, whose terminal has 80 columns: files of the project, rules and payments of their own."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUCKETS_CONSOLE_TOKEN", "a-token-of-a-page")
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    monkeypatch.setenv("WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    for name in ("conf", "schemas"):
        shutil.copytree(resource(name), tmp_path / name)
    for path in payments.iterdir():
        shutil.copy(path, tmp_path)
    shutil.copy(resource("schemas/transaction.yaml"), tmp_path / "my-schema.yaml")
    shutil.copy(resource("conf/demo-rules.yaml"), tmp_path / "my-rules.yaml")
    own_certificate(tmp_path)
    (tmp_path / "transactions.jsonl").write_text(FLINK_TRANSACTION, encoding="utf-8")
    return tmp_path
