"""What goes wrong with an object store in Spark, in one line: in its own client, or in a task of ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from buckets.errors import BucketsError
from buckets.spark.session_folder import last_error
from buckets.spark.session_places import log_path
from buckets.stores.store_path import StoreAway, store_away

_IN_TASK = re.compile(r"buckets\.stores\.store_path\.StoreAway: *(\S.*)")
_PLACE = re.compile(r"\bs3a://[^\s:,;)'\"]+")
_OF_CLIENT = re.compile(
    r"(?:awssdk|fs\.s3a)\S*(?:SdkClientException|ClientIOException|Status500|Throttled|Timeout|ConnectException)"
    r"|s3a.*\b(?:Status Code: 5\d\d|Connection re(?:fused|set)|Premature end|EOFException|NoHttpResponse)"
)
"""What Spark's client of S3 says of a server that does not answer, or not as it should."""
_REASON = re.compile(r"\bon s3a://\S+: (?:[\w.$]+: )*(.+)")
"""What it says of the request, behind the place and the kinds of errors."""


def explain_store(text: str) -> StoreAway | None:
    """Put a failure of Spark into one line; None where no store has a part in it.

    Args:
        text: Spark's text of the failure, with its causes.
    """
    ours = _IN_TASK.search(text)
    if ours is not None:
        return StoreAway(ours[1].strip())
    place = _PLACE.search(text)
    if place is None or _OF_CLIENT.search(text) is None:
        return None
    reason = _REASON.search(text)
    return store_away(place[0], (last_error(Exception(text)) if reason is None else reason[1])[:200])


@contextmanager
def java_in_one_line() -> Iterator[None]:
    """Say in one line what Java says of something that is opened at the start of a query.

    Raises:
        StoreAway: a store does not answer.
        BucketsError: it fails for another reason.
    """
    try:
        yield
    except Py4JJavaError as error:
        message = f"Spark cannot start the query: {last_error(error)}; details are in {log_path()}"
        raise explain_store(str(error)) or BucketsError(message) from error
