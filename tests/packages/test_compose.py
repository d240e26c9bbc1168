"""`compose.yaml`, which needs an engine to run: it is valid, what it mounts is there, and its commands exist."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from buckets.config.job import load_job
from buckets.resources import DEFAULT_SCHEMA, DEMO_RULES
from buckets.version import own_version
from deploy.image.containerfile import CONTAINERFILE
from tests.docs.commands import parse, words_of
from tests.packages.environment import ROOT
from tests.prometheus import promtool

FOLDER = ROOT / "deploy" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def test_it_is_of_the_schema_of_compose():
    schema = json.loads((FOLDER / "compose-spec.json").read_text())
    jsonschema.validate(COMPOSE, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(COMPOSE | {"services": {"job": {"comand": []}}}, schema)


def test_all_that_is_needed_beside_a_job_is_there():
    assert {"kafka", "job", "audit", "console", "prometheus", "grafana"} <= SERVICES.keys()
    for name, service in SERVICES.items():
        assert service.get("depends_on", {}).keys() <= SERVICES.keys(), name
        named = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        for place in named:
            assert (FOLDER / place).is_file() if place.startswith(".") else place in COMPOSE["volumes"], place


@pytest.mark.parametrize("name", OURS)
def test_a_command_is_one_of_the_program(name):
    service = OURS[name]
    if "entrypoint" in service:
        assert service["entrypoint"] == ["sh", "-c"]
        commands = [words_of(part) for part in re.split("&&", service["command"][0])]
        assert [words[0] for words in commands] == ["buckets", "buckets"]
        commands = [words[1:] for words in commands]
    else:
        commands = [service["command"]]
    for command in commands:
        parse(command)


@pytest.mark.parametrize("name", OURS)
def test_a_container_writes_to_volumes_alone(name):
    service = OURS[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["image"] == f"buckets:{own_version()}"
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == CONTAINERFILE


def test_the_job_fits_together_and_prometheus_asks_where_it_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("BUCKETS_CONSOLE_TOKEN", "only-on-this-machine")
    (tmp_path / "conf.yaml").write_text((FOLDER / "conf.yaml").read_text())
    (tmp_path / "schema.yaml").write_text(DEFAULT_SCHEMA.read_text())
    settings = load_job(tmp_path / "conf.yaml").settings
    assert settings.metrics is not None
    assert settings.audit is not None
    assert settings.audit.metrics is not None
    asked = re.findall(r'"(\w+):(\d+)"', (FOLDER / "prometheus.yaml").read_text())
    assert asked == [
        ("job", str(settings.metrics.port)),
        ("audit", str(settings.audit.metrics.port)),
        ("console", "8484"),
    ]
    for name, port in asked[:2]:
        assert f":{port}/healthz" in shlex.join(SERVICES[name]["healthcheck"]["test"])
    assert any((FOLDER / volume.partition(":")[0]).resolve() == DEMO_RULES for volume in OURS["rules"]["volumes"])
    promtool("check", "config", "--syntax-only", FOLDER / "prometheus.yaml")


@pytest.mark.parametrize("path", sorted((FOLDER / "grafana").iterdir()), ids=lambda path: path.name)
def test_grafana_is_told_of_prometheus_and_the_dashboard(path: Path):
    said = yaml.safe_load(path.read_text())
    assert said["apiVersion"] == 1
    mounted = [volume for volume in SERVICES["grafana"]["volumes"] if path.name in volume]
    assert len(mounted) == 1
