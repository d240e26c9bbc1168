"""The image: what its Containerfile says is carried out without an engine, and the demo runs in it as in a pod."""

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.version import own_version
from deploy.image.build import build as build_image
from deploy.image.containerfile import CONTAINERFILE, read_containerfile
from deploy.image.files import put_together
from tests.packages.container import Image, unpacked
from tests.packages.environment import ROOT, build
from tests.stores.server import object_store

USER = 10001
SCRIPTS = ROOT / "deploy" / "image"


def test_the_containerfile_can_be_carried_out_and_an_unknown_instruction_is_refused(as_worded):
    said = read_containerfile(CONTAINERFILE.read_text())
    assert said.base.startswith("debian:")
    assert [step.keyword for step in said.steps] == ["RUN", "COPY", "RUN"]
    assert said.settings["USER"] == f"{USER}:{USER}"
    assert said.words("ENTRYPOINT")[-1].endswith("/entrypoint")
    with pytest.raises(BucketsError, check=as_worded):
        read_containerfile("FROM debian\nHEALTHCHECK NONE\n")


def test_an_image_is_made_of_the_wheel_the_locks_and_two_scripts(tmp_path, as_worded):
    with pytest.raises(BucketsError) as none_there:
        put_together(tmp_path)
    assert "run make wheel" in none_there.value.message
    wheel = build("wheel", tmp_path)
    folder = put_together(tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        wheel.name, "install", "entrypoint", "build.lock", "runtime.lock"
    }  # fmt: skip
    assert "--hash=sha256:" in (folder / "build.lock").read_text()
    runtime = (folder / "runtime.lock").read_text()
    assert "\npyspark==" in runtime
    assert "\npytest==" not in runtime


@pytest.mark.parametrize("script", ["install", "entrypoint"])
def test_a_script_can_be_read_by_a_plain_shell(script):
    subprocess.run(["sh", "-n", SCRIPTS / script], check=True)


@pytest.mark.parametrize(
    ("arguments", "started"),
    [
        (["check", "conf.yaml"], "buckets check conf.yaml"),
        (["driver", "--class", "Runner", "score.py"], "spark-submit --conf spark.driver.bindAddress=10.0.0.7"),
        (["executor"], "java @/tmp/java-options -Xms2g -Xmx2g"),
    ],
)
def test_the_entry_point_starts_what_spark_asks_for_or_the_command(tmp_path, arguments, started):
    stub = tmp_path / "bin"
    stub.mkdir()
    for name in ("buckets", "spark-submit", "java"):
        (stub / name).write_text('#!/bin/sh\necho "$(basename "$0") $*"\n')
        (stub / name).chmod(0o755)
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID", "EXECUTOR_POD_IP", "RESOURCE_PROFILE_ID")
    variables = {f"SPARK_{name}": name.lower() for name in (*names, "EXECUTOR_POD_NAME")}
    variables |= {"SPARK_HOME": str(tmp_path), "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7", "SPARK_EXECUTOR_MEMORY": "2g"}
    ran = subprocess.run(
        [SCRIPTS / "entrypoint", *arguments],
        env=variables | {"PATH": f"{stub}:{os.environ['PATH']}"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.stdout.startswith(started)


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Iterator[Image]:
    """The image, built and unpacked."""
    missing = [tool for tool in ("mmdebstrap", "umoci", "runc") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip("needs root, mmdebstrap, umoci and runc: apt-get install mmdebstrap umoci runc")
    dist = tmp_path_factory.mktemp("dist")
    build("wheel", dist)
    with unpacked(f"{build_image(dist)}:{own_version()}", dist) as found:
        yield found
    shutil.rmtree(dist)


@pytest.fixture
def data(tmp_path) -> Path:
    """A folder of the user of the image."""
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, USER, USER)
    return folder


@pytest.mark.nightly
@pytest.mark.spark
def test_the_demo_runs_in_a_container_that_can_write_its_data_alone(image, data):
    ran = image.run("demo", "--transactions", "20000", data=data)
    assert ran.returncode == 0, ran.stderr
    assert "What was caught of the planted fraud" in ran.stdout
    assert (data / "demo-out" / "tables" / "alerts" / "_delta_log").is_dir()
    assert {path.stat().st_uid for path in data.rglob("*")} == {USER}
    refused = image.run("sh", "-c", "id -u; touch /opt/buckets/x || touch /var/x", data=data, entry=False)
    assert refused.returncode == 1
    assert refused.stdout == f"{USER}\n"
    assert refused.stderr.count("Read-only file system") == 2


@pytest.mark.nightly
@pytest.mark.spark
def test_a_driver_is_started_as_spark_starts_it_on_kubernetes(image, data):
    assert image.run("init", "first", data=data).returncode == 0
    places = "\n".join(f"spark.{side}.extraClassPath=/opt/buckets/jars/*" for side in ("driver", "executor"))
    python = "spark.pyspark.python=/opt/buckets/bin/python"
    (data / "spark.properties").write_text(f"spark.master=local[1]\n{python}\n{places}\n")
    ran = image.run(
        "driver", "--properties-file", "/data/spark.properties", "--class", "org.apache.spark.deploy.PythonRunner",
        "local:///opt/buckets/lib/python3.11/site-packages/buckets/jobs/score.py", "/data/first/conf.yaml",
        data=data, variables={"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "alerts, newest first" in image.run("alerts", "first/tables", data=data).stdout
    usage = image.run(
        "sh", "-c", 'java -cp "$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend',
        data=data, entry=False,
    )  # fmt: skip
    assert "--podName <podName>" in usage.stderr + usage.stdout


@pytest.mark.nightly
@pytest.mark.spark
def test_a_job_in_a_container_has_all_that_it_keeps_in_an_object_store(image, data, tmp_path):
    assert image.run("init", "first", data=data).returncode == 0
    conf = data / "first" / "conf.yaml"
    on_disk = conf.read_text()
    assert image.run("run", "first/conf.yaml", data=data).returncode == 0
    expected = image.run("alerts", "first/tables", "--json", data=data).stdout
    with object_store(tmp_path / "store") as store:
        bucket = store.bucket("risk")
        conf.write_text(re.sub("(checkpoint: |path: )(checkpoint|archive|tables)", rf"\1{bucket}/\2", on_disk))
        ran = image.run("run", "first/conf.yaml", data=data, variables=store.environment, network=True)
        assert ran.returncode == 0, ran.stderr[-2000:]
        listed = image.run("alerts", f"{bucket}/tables", "--json", data=data, variables=store.environment, network=True)
    kept = ("alert_id", "event_id", "rule_id", "value")
    alerts = [[{name: row[name] for name in kept} for row in json.loads(text)] for text in (listed.stdout, expected)]
    assert alerts[0] == alerts[1] != []


@pytest.mark.nightly
def test_nothing_in_the_image_may_become_root_and_nothing_is_left_of_the_build(image):
    files = [path for path in image.root.rglob("*") if not path.is_symlink()]
    owned = [path for path in files if path.is_relative_to(image.root / "opt") and path.stat().st_mode & stat.S_IWOTH]
    assert owned == []
    assert not list((image.root / "build").iterdir())
    assert not (image.root / "run" / "lent").exists()
    assert not (image.root / "root" / ".cache" / "pip").exists() or not any(
        (image.root / "root" / ".cache" / "pip").iterdir()
    )
