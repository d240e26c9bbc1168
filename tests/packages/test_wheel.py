"""A package is enough: from an empty folder to the first alert, without the checkout."""

import json
import os
from pathlib import Path

import pytest

from buckets.java.jars import FOLDER_VARIABLE
from deploy.requirements import runtime_requirements
from tests.packages.environment import ROOT, Environment, build, install, lent, made


def first_alerts(environment: Environment, folder: Path) -> list[dict[str, object]]:
    """Go as a newcomer does, in an empty folder; returns the alerts."""
    environment.run("buckets", "init", "first", cwd=folder)
    first = folder / "first"
    assert "2 passed" in environment.run("buckets", "rules", "test", "rules.yaml", "--schema", "schema.yaml", cwd=first)
    environment.run("buckets", "check", "conf.yaml", cwd=first)
    environment.run("buckets", "run", "conf.yaml", cwd=first)
    alerts: list[dict[str, object]] = json.loads(environment.run("buckets", "alerts", "tables", "--json", cwd=first))
    return alerts


def where_it_is(environment: Environment, folder: Path) -> Path:
    """Return the folder of the package that an environment imports."""
    return Path(environment.run("python", "-c", "import buckets; print(buckets.__path__[0])", cwd=folder).strip())


@pytest.mark.spark
def test_a_wheel_is_enough_from_an_empty_folder_to_the_first_alert(tmp_path):
    environment = lent(tmp_path / "env", build("wheel", tmp_path / "dist"))
    (tmp_path / "home").mkdir()
    assert where_it_is(environment, tmp_path / "home").is_relative_to(tmp_path / "env")
    alerts = first_alerts(environment, tmp_path / "home")
    assert {alert["rule_id"] for alert in alerts} == {"card-five-in-five-minutes"}


def test_a_source_archive_makes_the_same_package(tmp_path):
    wheel = lent(tmp_path / "env", build("wheel", tmp_path / "dist"))
    archive = lent(tmp_path / "other env", build("sdist", tmp_path / "other dist"))
    contents = [
        {
            str(path.relative_to(package)): path.read_bytes()
            for path in package.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        for package in (where_it_is(wheel, tmp_path), where_it_is(archive, tmp_path))
    ]
    assert contents[0] == contents[1]
    assert {"conf/first/conf.yaml", "jobs/score.py", "schemas/transaction.yaml"} <= contents[0].keys()


@pytest.mark.nightly
@pytest.mark.spark
def test_with_nothing_there_a_wheel_fetches_and_compiles_what_it_needs(tmp_path):
    """As on a new machine: packages by their hashes, jars, kernels; then the first alert, and the demo."""
    home = tmp_path / "home"
    home.mkdir()
    environment = made(tmp_path / "env", {"HOME": str(home), FOLDER_VARIABLE: str(home / "jars")})
    (tmp_path / "runtime.lock").write_text(runtime_requirements())
    install(environment, "--require-hashes", "-r", tmp_path / "runtime.lock")
    install(environment, "--no-deps", build("wheel", tmp_path / "dist"))

    assert first_alerts(environment, home)
    assert "caught" in environment.run("buckets", "demo", "--transactions", "20000", cwd=home)
    assert list((home / "jars").glob("delta-spark*.jar"))
    assert not any(
        str(ROOT) in line for line in environment.run("python", "-c", "import sys; print(sys.path)", cwd=home)
    )
    assert os.listdir(home / ".cache" / "buckets")
