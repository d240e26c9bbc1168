"""What Spark is told of object stores, where a job has its checkpoint or its tables in one."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from buckets.stores.store_path import StorePath

S3A = "s3a"
_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""Where keys come from, the first that has some: settings, the environment, a pod's service account, the machine."""
STORE_FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""What writes the files of a checkpoint in a store: one is there when its upload is complete, so none is written
elsewhere and renamed, which in a store means copied: half the requests of a batch. On a disk it cannot write any."""
_S3A: Mapping[str, str] = {
    "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS),
    # Nobody else writes into these folders, so nothing is looked for before a file is made, and folders that get empty
    # need no object in their place.
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    # A small file is sent at once; asking first whether it may be is a round trip more, and not all servers answer.
    "spark.hadoop.fs.s3a.connection.expect.continue": "false",
    # Files of a batch are small; they need not go over this machine's disk.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
    # A request that is not answered fails after a minute and a half, and not after eight: we wait for the store.
    "spark.hadoop.fs.s3a.connection.request.timeout": "30s",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    # Without this a jar is wanted that only its own, other stream needs.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
}


def schemes_of(paths: Iterable[Path | None]) -> frozenset[str]:
    """Return the schemes of the object stores in which some paths lie."""
    return frozenset(path.parts[0].rstrip(":") for path in paths if isinstance(path, StorePath))


def store_settings(schemes: frozenset[str]) -> dict[str, str]:
    """Return the settings of a session that uses stores of these schemes; endpoint and region as the environment says.

    Of others than S3 Spark needs jars that are not fetched here, and settings of its own under `spark`.
    """
    if S3A not in schemes:
        return {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings = dict(_S3A)
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings
