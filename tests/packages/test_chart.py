"""The chart: what Kubernetes gets of it is valid, safe by its own rules, and what lies in the repository."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from buckets.config.job import load_job
from deploy.go_program import built
from deploy.helm.render import FOLDER, RENDERED, SOURCE, digest, examples, helm_is_built, lint, rendered
from tests.laws import NIGHTLY

EXAMPLES = [path.stem for path in examples()]
Resource = dict[str, Any]


def resources(example: str) -> list[Resource]:
    return list(filter(None, yaml.safe_load_all((RENDERED / f"{example}.yaml").read_text())))


def of_kind(example: str, kind: str) -> list[Resource]:
    return [resource for resource in resources(example) if resource["kind"] == kind]


def job_files(example: str) -> list[Resource]:
    return [each for each in of_kind(example, "ConfigMap") if "conf.yaml" in each["data"]]


def pods(example: str) -> Iterator[Resource]:
    """The specs of all pods that an example leads to: the job's, and those of templates of executors and drivers."""
    for resource in of_kind(example, "StatefulSet"):
        yield resource["spec"]["template"]["spec"]
    for resource in of_kind(example, "ConfigMap"):
        if "executor.yaml" in resource["data"]:
            yield yaml.safe_load(resource["data"]["executor.yaml"])["spec"]
    for resource in of_kind(example, "SparkApplication"):
        spec = resource["spec"]
        if "driverSpec" in spec:
            templates = [spec["driverSpec"]["podTemplateSpec"], spec["executorSpec"]["podTemplateSpec"]]
        else:
            templates = [spec["driver"]["template"], spec["executor"]["template"]]
        yield from (template["spec"] for template in templates)


def conform(*files: Path) -> subprocess.CompletedProcess[str]:
    program = built("github.com/yannh/kubeconform", "v0.8.0", "cmd/kubeconform")
    if program is None:
        pytest.skip("there is no Go here that builds kubeconform")
    schemas = f"{FOLDER}/schemas/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    command: Sequence[str | Path] = [program, "-strict", "-schema-location", schemas, *files]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_what_is_kept_was_made_of_this_chart():
    assert SOURCE.read_text().strip() == digest(), "run make chart, and read the difference"


@pytest.mark.skipif(
    not helm_is_built() and (not NIGHTLY or shutil.which("go") is None),
    reason="helm takes minutes to build; `make chart` does it with Go",
)
@pytest.mark.parametrize("example", EXAMPLES)
def test_helm_finds_nothing_wrong_and_makes_of_it_what_is_kept(example):
    values = FOLDER / "values" / f"{example}.yaml"
    lint(values)
    assert rendered(values) == (RENDERED / f"{example}.yaml").read_text()


def test_all_resources_are_of_the_schemas_of_kubernetes_and_the_operators(tmp_path):
    ran = conform(*(RENDERED / f"{example}.yaml" for example in EXAMPLES))
    assert ran.returncode == 0, ran.stdout
    for example, wrong in (
        ("one-pod", "replicas: 1"),
        ("apache", "runtimeVersions:"),
        ("kubeflow", "mainApplicationFile:"),
    ):
        text = (RENDERED / f"{example}.yaml").read_text()
        assert wrong in text
        (tmp_path / "wrong.yaml").write_text(text.replace(wrong, f"un{wrong}"))
        assert conform(tmp_path / "wrong.yaml").returncode == 1


@pytest.mark.parametrize("example", EXAMPLES)
def test_pods_are_not_root_and_write_to_volumes_alone(example):
    found = list(pods(example))
    assert len(found) == {"one-pod": 1}.get(example, 2)
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"]
        writable = {volume["name"] for volume in pod["volumes"] if "configMap" not in volume}
        assert writable == {"data", "scratch", "shared"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container["volumeMounts"]} >= writable


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_pod_has_limits(example):
    for resource in of_kind(example, "StatefulSet"):
        for container in resource["spec"]["template"]["spec"]["containers"]:
            assert {"cpu", "memory"} == container["resources"]["limits"].keys()
    settings = [yaml.safe_load(each["data"]["conf.yaml"]).get("spark", {}) for each in job_files(example)]
    settings += [each["spec"]["sparkConf"] for each in of_kind(example, "SparkApplication")]
    # Spark makes these pods, and takes cores and memory of its settings, not of a template.
    for each in settings:
        if "spark.executor.instances" in each:
            assert {"spark.kubernetes.executor.limit.cores", "spark.executor.memoryOverhead"} <= each.keys()


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_configuration_of_an_example_is_one_of_a_job_that_answers_probes(example, tmp_path, monkeypatch):
    for name in ("KAFKA_PASSWORD", "BUCKETS_CONSOLE_TOKEN"):
        monkeypatch.setenv(name, "a long enough secret")
    (files,) = [each["data"] for each in job_files(example)]
    files |= {name: text for each in of_kind(example, "ConfigMap") for name, text in each["data"].items()}
    for name, text in files.items():
        (tmp_path / name).write_text(re.sub("/etc/buckets/(job|rules)", str(tmp_path), text))
    metrics = load_job(tmp_path / "conf.yaml").settings.metrics
    assert metrics is not None
    assert metrics.place == "0.0.0.0:9464"
    jobs = [container for pod in pods(example) for container in pod["containers"] if "livenessProbe" in container]
    assert [container["ports"][0]["containerPort"] for container in jobs] == [metrics.port]


@pytest.mark.parametrize("example", EXAMPLES)
def test_who_is_selected_is_there(example):
    labels = [resource["spec"]["template"]["metadata"]["labels"] for resource in of_kind(example, "StatefulSet")]
    for resource in of_kind(example, "SparkApplication"):
        driver = resource["spec"].get("driverSpec", {}).get("podTemplateSpec") or resource["spec"]["driver"]["template"]
        labels.append(driver["metadata"]["labels"])
    selectors = [each["spec"]["selector"] for each in of_kind(example, "Service")]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in of_kind(example, "PodDisruptionBudget")]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(example, "NetworkPolicy")]
    (of_job,) = labels
    assert len(selectors) >= 3
    assert all(selector.items() <= of_job.items() for selector in selectors)
