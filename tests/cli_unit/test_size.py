"""`buckets size`: what a job needs, in tables and for programs, and what is refused in one line."""

import json

import pytest
import yaml

from tests.cli_unit.ran import one_line
from tests.core.size.test_job_workload import SHORT, job
from tests.core.size.workloads import CONSTANTS


@pytest.fixture
def conf(tmp_path):
    job(tmp_path)
    return tmp_path / "conf.yaml"


@pytest.fixture
def constants(tmp_path):
    path = tmp_path / "constants.yaml"
    path.write_text(yaml.safe_dump(CONSTANTS.model_dump(mode="json")))
    return path


def test_what_a_job_needs_is_shown(buckets, conf, constants):
    ran = buckets("size", conf, "--rate", "20k", "--keys", "50M", "--cores", 100, "--constants", constants)
    assert ran.code == 0, ran.err
    for text in ("What the job needs", "Where its CPU goes", "What breaks first", "cold keys", "one of tests"):
        assert text in ran.out


def test_with_json_all_numbers_are_there(buckets, conf):
    ran = buckets("size", conf, "--rate", "2k", "--keys", "1M", "--keys", "payerId=5k", "--json")
    report = json.loads(ran.out)
    assert report["version"] == 1
    numbers = {name: value for name, value in report.items() if isinstance(value, int | float) and name != "keeps_up"}
    assert len(numbers) == 13
    assert all(value > 0 for value in numbers.values())
    assert {"cores", "tasks", "driver", "time", "disk", "memory"} == {limit["name"] for limit in report["limits"]}


def test_rules_may_be_those_of_a_file(buckets, conf, tmp_path):
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({"rules": [SHORT]}))
    job(tmp_path, rules={"table": "rules"})
    ran = buckets("size", conf, "--rate", 5, "--keys", 5, "--rules", tmp_path / "other.yaml", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["keys"] == pytest.approx(5)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--rate", "0", "--keys", "1M"], 1),
        (["--rate", "fast", "--keys", "1M"], 1),
        (["--rate", "5X", "--keys", "1M"], 1),
        (["--rate", "5", "--keys", "0"], 1),
        (["--rate", "5", "--keys", "0.5"], 1),
        (["--rate", "5", "--keys", "card=7"], 2),
        (["--rate", "5", "--keys", "payerId=7"], 2),
        (["--rate", "5", "--keys", "5", "--cores", "0"], 2),
        (["--rate", "5", "--keys", "5", "--text-bytes", "0"], 2),
        (["--keys", "5"], 2),
        (["--rate", "5"], 2),
    ],
)
def test_a_question_that_says_nothing_is_refused_in_one_line(options, code, buckets, conf, as_worded):
    assert as_worded(one_line(buckets("size", conf, *options), code))


def test_rules_without_windows_are_refused_in_one_line(buckets, conf, tmp_path, as_worded):
    rule = {name: value for name, value in SHORT.items() if name != "window"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [rule]}))
    assert as_worded(one_line(buckets("size", conf, "--rate", 5, "--keys", 5), 2))


@pytest.mark.parametrize("change", [{"machine": 5}, {"disk_bytes_s": 0}, {"python_us": {"touch": 1}}, None])
def test_a_file_that_has_no_constants_is_refused_in_one_line(change, buckets, conf, constants, as_worded):
    text = yaml.safe_dump(CONSTANTS.model_dump(mode="json") | (change or {}))
    constants.write_text(text if change else "[1, 2]")
    ran = buckets("size", conf, "--rate", 5, "--keys", 5, "--constants", constants)
    assert as_worded(one_line(ran, 2))


def test_constants_that_are_not_there_are_refused_in_one_line(buckets, conf, tmp_path, as_worded):
    ran = buckets("size", conf, "--rate", 5, "--keys", 5, "--constants", tmp_path / "none.yaml")
    assert as_worded(one_line(ran, 2))
