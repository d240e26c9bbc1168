"""Runs configurations one after the other in one session with the product on PYTHONPATH; prints a line for each batch.

    python bench/size_run.py CONF...

A line is what `team_run.py` prints of a batch, with `conf`, the number of the configuration. Java is warm for all but
the first one.
"""

import json
import sys
from pathlib import Path

from team_run import measured_batches

from buckets.config.job import load_job
from buckets.spark.prepared_job import job_session
from buckets.spark.session import PARTITIONS


def main() -> None:
    """Run, and print what was measured."""
    for number, path in enumerate(sys.argv[1:]):
        job = load_job(Path(path))
        session = job_session(job)
        session.conf.set(PARTITIONS, str(job.settings.partitions))
        for line in measured_batches(job, session):
            print(json.dumps({"conf": number} | line), flush=True)


if __name__ == "__main__":
    main()
