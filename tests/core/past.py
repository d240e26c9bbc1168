"""What an explanation is made of, as a job without Spark leaves it behind."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from buckets.engine.batch.dead_letters import dead_letter_table, one_dead_letter_per_event
from buckets.events.arrivals import DeadLetter
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.maker import Explainer
from buckets.outputs import columns
from tests.core.archived_job import ArchivedJob


def write_results(job: ArchivedJob, folder: Path, evaluations: bool = True) -> None:
    """Write what has come out of a job into tables."""
    for output, schema in columns.output_columns(job.schema.largest_scale).items():
        rows = job.pipeline.output(output)
        table = pa.Table.from_pylist(rows, schema=schema)
        if output == columns.DEAD_LETTERS:
            names = DeadLetter.__annotations__
            letters = [DeadLetter(**{name: row[name] for name in names}) for row in rows]
            table = one_dead_letter_per_event(dead_letter_table(letters))
        if len(table) and (evaluations or output != columns.EVALUATIONS):
            write_deltalake(folder / output, table, mode="overwrite")


def explainer_of(job: ArchivedJob, folder: Path, evaluations: bool = True, most: int | None = None) -> Explainer:
    """What explains the alerts of a job; its results are written into a folder first."""
    write_results(job, folder, evaluations)
    past = Past.of(job.archive, job.recorded, folder, job.checkpoint.versions)
    return Explainer(past, most)
