"""What Spark says of a store that does not answer, by its own client of S3 and by tasks of ours. Without a JVM."""

import pytest

from buckets.spark.faults import explain_store

AWAY = [
    (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: listObjects() on s3a://b/2.json: "
        "software.amazon.awssdk.core.exception.ApiCallTimeoutException: Client execution did not complete SQLSTATE: X",
        "s3a://b/2.json: the store does not answer as it should (Client execution did not complete",
    ),
    (
        "java.net.ConnectException: getFileStatus on s3a://b/cp/spark/offsets/3: software.amazon.awssdk.core.exception."
        "SdkClientException: Unable to execute HTTP request: Connect to 127.0.0.1:9 failed: Connection refused",
        "s3a://b/cp/spark/offsets/3: the store does not answer as it should (Unable to execute HTTP request: Connect",
    ),
    (
        "org.apache.hadoop.fs.s3a.AWSServiceThrottledException: PUT 0-byte object on s3a://b/cp/x: software.amazon."
        "awssdk.services.s3.model.S3Exception: Slow down (Service: S3, Status Code: 503)",
        "s3a://b/cp/x: the store does not answer as it should (Slow down (",
    ),
    (
        "org.apache.hadoop.fs.s3a.AWSStatus500Exception: open s3a://b/cp/x at 0 on s3a://b/cp/x: Status Code: 500",
        "s3a://b/cp/x: the store does not answer as it should (Status Code: 500)",
    ),
    (
        "PythonException: Traceback\nbuckets.stores.store_path.StoreAway: s3a://b/x: the store does not answer as it "
        "should (timed out); see that it runs\n\tat org.apache.spark.x",
        "s3a://b/x: the store does not answer as it should (timed out); see that it runs",
    ),
]


@pytest.mark.parametrize(("text", "said"), AWAY)
def test_a_store_that_does_not_answer_is_an_outage_in_a_line(text, said):
    outage = explain_store(text)
    assert outage is not None
    assert outage.message.startswith(said)
    assert "\n" not in outage.message


@pytest.mark.parametrize(
    "text",
    [
        "java.nio.file.AccessDeniedException: s3a://b/x: getFileStatus on s3a://b/x: software.amazon.awssdk.services.s3"
        ".model.S3Exception: null (Service: S3, Status Code: 403, Request ID: 1)",
        "java.io.FileNotFoundException: No such file or directory: s3a://b/cp/spark/state/0/1/3.delta",
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting",
        "java.net.ConnectException: Connection refused",
    ],
)
def test_what_is_no_outage_of_a_store_is_not_taken_for_one(text):
    assert explain_store(text) is None
