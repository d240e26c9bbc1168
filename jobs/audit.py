"""The audit for spark-submit: `spark-submit jobs/audit.py CONF`, the same as `buckets audit CONF`."""

import sys

from buckets.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["audit"]
    main()
