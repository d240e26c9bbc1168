"""What is released: all files with their checksums, a valid bill of materials, one version everywhere."""

import hashlib
import json
import re
import tomllib

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from buckets.errors import BucketsError
from buckets.java.jars import SPARK_JARS
from buckets.version import own_version
from deploy import release as releasing
from deploy.bill import bill_of_materials
from deploy.helm.render import CHART
from deploy.release import CHECKSUMS, release
from deploy.requirements import LOCK, runtime_requirements
from tests.packages.environment import ROOT, build


@pytest.fixture
def chart_by_hand(monkeypatch):
    """Packs the chart without helm."""

    def pack(folder):
        path = folder / "chart.tgz"
        path.write_bytes((CHART / "Chart.yaml").read_bytes())
        return path

    monkeypatch.setattr(releasing, "package", pack)


def test_a_release_has_all_files_and_their_checksums(tmp_path, chart_by_hand, as_worded):
    with pytest.raises(BucketsError) as refused:
        release(tmp_path)
    assert "run make wheel" in refused.value.message
    for target in ("wheel", "sdist"):
        build(target, tmp_path / target).rename(tmp_path / next((tmp_path / target).iterdir()).name)
    layout = tmp_path / "image.oci"
    layout.mkdir()
    (layout / "index.json").write_text("{}")
    files = release(tmp_path)
    endings = {path.name.removeprefix(f"buckets-{own_version()}") for path in files}
    assert endings == {
        "-py3-none-any.whl", ".tar.gz", "-requirements.lock", ".cdx.json", "-chart.tgz", "-image.tar", CHECKSUMS
    }  # fmt: skip
    for line in (tmp_path / CHECKSUMS).read_text().splitlines():
        checksum, name = line.split("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == checksum


def test_the_bill_of_materials_is_valid_and_names_what_a_job_loads_and_no_tool():
    text = bill_of_materials()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    parts = {part["purl"]: part for part in json.loads(text)["components"]}
    names = {part["name"] for part in parts.values()}
    assert {"pyspark", "numba", "delta-spark_4.2_2.13", "htmx.org", "uplot"} <= names
    assert not {"pytest", "ruff", "marimo"} & names
    for jar in SPARK_JARS:
        part = parts[f"pkg:maven/{jar.organisation}/{jar.artifact}@{jar.revision}"]
        assert part["hashes"] == [{"alg": "SHA-256", "content": jar.sha256}]
        assert part["scope"] == "required"
    locked = set(re.findall(r"^([\w.-]+==[^\s;]+)", LOCK.read_text(), re.MULTILINE))
    packages = {f"{part['name']}=={part['version']}" for purl, part in parts.items() if "pypi" in purl}
    assert packages <= locked
    assert all(part["version"] for part in parts.values())


def test_what_a_job_needs_is_a_part_of_the_lock_and_has_all_that_it_asks_for():
    wanted = {re.split(r"[^\w-]", line)[0] for line in _project()["dependencies"]}
    lines = _without_markers(runtime_requirements())
    assert set(lines) <= set(_without_markers(LOCK.read_text()))
    assert {line.partition("==")[0] for line in lines if line[0].isalpha()} >= wanted


def _without_markers(lock: str) -> list[str]:
    """A package that others ask for too may be wanted on more systems."""
    return [re.sub(r" ;.*", " \\\\", line) for line in lock.splitlines()]


def test_one_version_stands_everywhere():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"], _project()["version"]} == {own_version()}


def _project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
