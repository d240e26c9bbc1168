"""What a version of Spark lacks is one line, before a query reads anything."""

import pyspark
import pytest

from buckets.errors import BucketsError
from buckets.java.java import SPARK_LINES, spark_line
from buckets.spark import session_folder
from buckets.spark.session_folder import check_delta, check_kafka, check_own_jar


@pytest.mark.parametrize("version", ["3.5.7", "4.0.5", "4.4.0", "5.0.0.dev1"])
def test_a_version_that_is_not_supported_is_refused(monkeypatch, version, as_worded):
    monkeypatch.setattr("sys.prefix", "/environment")
    with pytest.raises(BucketsError, check=as_worded):
        spark_line(version)
    assert [spark_line(f"{line}.7") for line in SPARK_LINES] == list(SPARK_LINES)


def test_topics_without_a_connector_are_refused(monkeypatch, as_worded):
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    monkeypatch.setattr(session_folder, "has_class", lambda name: False)
    with pytest.raises(BucketsError, check=as_worded):
        check_kafka("topics at broker:9092")
    monkeypatch.setattr(session_folder, "has_class", lambda name: True)
    check_kafka("topics at broker:9092")


def test_a_table_that_spark_cannot_read_is_refused(monkeypatch, as_worded):
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    with pytest.raises(BucketsError, check=as_worded):
        check_delta("events table")
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    check_delta("events table")


def test_a_session_without_our_jar_is_refused(monkeypatch, as_worded):
    monkeypatch.setattr(session_folder, "has_class", lambda name: False)
    with pytest.raises(BucketsError, check=as_worded):
        check_own_jar()
