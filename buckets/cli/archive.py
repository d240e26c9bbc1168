"""The command `buckets archive`: all that has arrived, typed, as one Delta table."""

from buckets.archive.archiving import History
from buckets.cli.console import Terminal, echo
from buckets.cli.options import ArchivedConf
from buckets.config.job import load_job
from buckets.errors import BucketsError


def archive(conf: ArchivedConf) -> None:
    """Archive what a job has scored since the last time; the job may run meanwhile.

    The archive is one Delta table of all that has arrived, typed, in the
    order of arrival, with the batch that scored each row. Whatever asks the
    past extends it first; run this where files or messages of the source are
    removed after some time. A topic is archived from the tables of its audit.

    \b
    Examples:
      buckets archive conf/demo.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    console = Terminal(stderr=True)
    appended = 0
    with console.status("Reading what has arrived…") as status:

        def on_rows(rows: int) -> None:
            nonlocal appended
            appended += rows
            status.update(f"{appended:,} rows archived…")

        history = History.open(job, on_rows)
        status.update("Joining small files…")
        history.archive.tidy()
    echo(f"{appended:,} rows archived; {history.archive.end():,} are in {history.archive.folder}")
    if history.obstacle is not None:
        raise BucketsError(history.obstacle)
