"""The Python process from which Spark's local workers are forked, with all loaded that scoring needs.

Spark forks a worker for each task that runs at once, and ends one that was idle for a minute. Each would import the
engine and load its kernels for itself, which a first batch has to wait for; forked, they share all of it, and its
memory too. Nothing that is loaded starts a thread but Arrow's allocator, which is made to be forked.
"""

import gc

from pyspark import daemon
from pyspark import worker as pyspark_worker

from buckets.engine.stages import warm_up
from buckets.spark import batch_properties, fan_out, windows
from buckets.state import layer

LOADED = (pyspark_worker, batch_properties, fan_out, windows, layer)
"""What workers import."""


def main() -> None:
    """Load the kernels, take everything out of the garbage collector's sight, and fork workers until Spark ends."""
    warm_up.warm_up()
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
