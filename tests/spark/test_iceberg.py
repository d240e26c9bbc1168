"""A stream reads an Iceberg table, and appends each batch to another one, once."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from buckets.java.jars import Jar, jar_folder, whole_jars

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not pyspark.__version__.startswith("4.1."), reason="Iceberg is published for Spark 4.1"),
]
RUNTIME = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
CHILD = Path(__file__).with_name("iceberg_child.py")


def test_a_stream_from_a_table_to_a_table_is_bs_features_and_a_batch_that_is_tried_again_is_there_once(tmp_path):
    (jar,) = whole_jars([RUNTIME], jar_folder() / "iceberg", print)
    command = [sys.executable, "-m", "tests.spark.iceberg_child", str(tmp_path), str(jar)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHILD.parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
