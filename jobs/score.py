"""The main job for spark-submit: `spark-submit jobs/score.py CONF`, the same as `buckets run CONF`."""

import sys

from buckets.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["run"]
    main()
