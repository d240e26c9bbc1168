"""An environment of which no client of a store can be made: one line, where the library would end the program."""

import pytest
import yaml

from buckets.errors import BucketsError
from buckets.stores.location import location
from buckets.stores.store_path import store_of

WRONG = [
    *[("AWS_ENDPOINT_URL", value) for value in ("", "nonsense", "http://", "http://a..b", "http://x:0")],
    ("AWS_ENDPOINT", ""),
    ("AWS_ENDPOINT_URL_S3", ""),
    ("AWS_REGION", "eu\n"),
    ("AWS_ACCESS_KEY_ID", "key\n"),
    ("AWS_SECRET_ACCESS_KEY", "secret word\n"),
    ("AWS_SESSION_TOKEN", "a\tb"),
    ("AZURE_STORAGE_ACCOUNT_KEY", "a\n"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_that_no_client_can_be_made_of_is_one_line(monkeypatch, name, value, as_worded):
    monkeypatch.setenv(name, value)
    with pytest.raises(BucketsError, check=as_worded) as refused:
        location("s3://bucket/folder")
    assert "secret word" not in str(refused.value)
    store_of.cache_clear()
    with pytest.raises(BucketsError, check=as_worded):
        store_of("s3a://bucket", "", 1.0)
    assert str(location("folder")) == "folder"  # nobody else is concerned


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_check_and_run_say_it_in_a_line(monkeypatch, tmp_path, buckets, name, value):
    monkeypatch.setenv(name, value)
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: t\n")
    conf = {"source": {"kind": "json", "path": "s3://bucket/in"}, "schema": "schema.yaml", "rules": "rules.yaml"}
    conf |= {"checkpoint": "s3://bucket/checkpoint", "output": {"path": "s3://bucket/tables"}}
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(conf))
    for command in ("check", "run"):
        ran = buckets(command, tmp_path / "conf.yaml")
        assert ran.code != 0
        assert name in ran.out + ran.err
        assert "Traceback" not in ran.out + ran.err
