"""What must be there for a replay: all that was scored, in one set of names, with the lists that it saw."""

from buckets.archive.archive import BATCH
from buckets.archive.history import History
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.cuts import Cut
from buckets.delta.query import is_between
from buckets.errors import BucketsError
from buckets.moment import TimeRange


def check_whole(history: History, times: TimeRange) -> int | None:
    """See that the archive has all that was scored, from the first batch on.

    Returns:
        The last batch that is recorded, where the archive ends before it.

    Raises:
        BucketsError: it has not.
    """
    archive, recorded = history.archive, history.recorded
    if recorded.before is not None:
        message = (
            f"the batches up to {recorded.before.batch_id} are not in the archive: an earlier release has scored them, "
            "which did not keep where it cut the stream, or `buckets audit` has not kept all of their messages; only a "
            "job that is archived from its beginning can be replayed"
        )
        raise BucketsError(message)
    _check_names(history)
    _check_lists(history)
    end, last = archive.last_batch(), max((cut.batch_id for cut in recorded.cuts if cut.span), default=None)
    if end is None:
        message = f"archive {archive.folder}: holds nothing; the job has not scored anything that could be archived"
        raise BucketsError(message)
    if last is None or end[0] >= last:
        return None
    if times.until_ms is None:
        message = history.obstacle or (
            f"archive {archive.folder}: ends with batch {end[0]}, and the job has written batch {last}; "
            "wait until `buckets audit` has read the topic, or compare what is earlier with --to"
        )
        raise BucketsError(message)
    return last


def _check_names(history: History) -> None:
    """See that fields have had the same names all the time."""
    renamed = next((made for made in Checkpoint(history.job.checkpoint).imports.read() if made.names), None)
    if renamed is not None:
        old, new = next(iter(renamed.names.items()))
        message = (
            f"field {old} is called {new} since batch {renamed.batch_id + 1}, where state was imported; history under "
            f"other names cannot be replayed: replay the job before the import, on checkpoint {renamed.checkpoint}"
        )
        raise BucketsError(message)


def _check_lists(history: History) -> None:
    """See that the lists of all batches are still there."""
    lists = Checkpoint(history.job.checkpoint).lists
    first: dict[str, Cut] = {}
    for cut in history.recorded.cuts:
        for name in cut.lists:
            first.setdefault(name, cut)
    for name, cut in first.items():
        if not lists.is_kept(name, cut.lists[name]):
            message = (
                f"batch {cut.batch_id} saw version {cut.lists[name]} of list {name}, which is not kept any more: "
                "versions of lists are kept for good from the time when the configuration got its `archive`"
            )
            raise BucketsError(message)


def last_batch_within(history: History, times: TimeRange) -> int:
    """Return the last batch that holds an event of some time.

    Raises:
        BucketsError: there is none.
    """
    last_terms = history.recorded.terms(history.recorded.cuts[-1].batch_id)
    tests = ["true", *is_between(last_terms.event_schema.event_time.field, times)]
    last = history.archive.query(f"select max({BATCH}) as last from archive where {' and '.join(tests)}")["last"][0]
    if last.as_py() is None:
        message = f"archive {history.archive.folder}: no event has happened in that time; ask for another one"
        raise BucketsError(message)
    return int(last.as_py())
