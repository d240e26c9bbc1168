"""The main job for spark-submit: `spark-submit jobs/score.py CONF`, the same as `buckets run CONF`."""

import sys

try:
    from buckets.cli.commands import main
except ImportError as error:
    sys.exit(f"error: {error}")

if __name__ == "__main__":
    sys.argv[1:1] = ["run"]
    main()
