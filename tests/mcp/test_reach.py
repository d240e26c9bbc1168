"""What each tool of an assistant may touch: paths of the machine that it is handed are texts like any other."""

import json
import shutil

import pytest

from tests.console.job_folder import write_job
from tests.mcp.assistant import connected
from tests.mcp.test_answers import RULE, TOOLS

SECRET = "a-secret-of-the-machine"
WRITES = {"propose_draft": ("rules.yaml", ".rules.yaml")}
"""What a tool may write in the job's folder; all others write nothing but by which field an archive is sorted."""
WAYS = ("{0}/{1}", "../{1}", "{1}", "file://{0}/{1}")
NOTE = "archive/arrivals/_delta_log"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    (folder / "job").mkdir()
    row = {"id": SECRET, "at": 1_767_225_600_000, "payer": SECRET, "amount": "1"}
    for path in (folder / "secret.jsonl", folder / "job" / "secret.jsonl"):
        path.write_text(json.dumps(row) + "\n")
    write_job(folder / "job")
    return folder


@pytest.fixture(scope="module")
def assistant(place):
    with connected(place / "job" / "conf.yaml", place / "log.txt") as one:
        yield one


def content(place):
    job = place / "job"
    return {str(path.relative_to(job)): path.read_bytes() for path in job.rglob("*") if path.is_file()}


def test_all_tools_are_tried(assistant):
    assert assistant.tools().keys() == TOOLS


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_tool_opens_no_file_that_is_named_and_tells_nothing_of_it(assistant, place, tool):
    texts = {
        name: schema
        for name, schema in assistant.tools()[tool].input_schema["properties"].items()
        if schema.get("type") in ("string", "array", "object")
    }
    needed = {"reason": "why", "rule": RULE, "event_id": "e0", "rule_id": "large", "key": {"payer": "p1"}}
    if tool == "backtest_draft":
        del needed["rule_id"]
    required = {name: needed[name] for name in texts if name in needed}
    before = content(place)
    if tool in WRITES:
        assistant.answer(tool, **required)  # so that the same draft is there each time
    for name, schema in texts.items():
        for way in (*WAYS, *(f"given {way}" for way in WAYS if name == "rule")):
            said = []
            for file in ("secret.jsonl", "nobody.jsonl"):
                text = way.removeprefix("given ").format(place, file)
                if way.startswith("given"):
                    text = RULE + f"tests: [{{name: one, given: {{file: {text}}}, expect: {{alerts: []}}}}]\n"
                given = {"array": [text], "object": {"payer": text}}.get(schema["type"], text)
                result = assistant.call(tool, **required | {name: given})
                answer = "".join(content.text for content in result.content)
                assert SECRET not in answer
                said.append(answer.replace("nobody.jsonl", "secret.jsonl"))
            assert len(set(said)) <= 1, (name, way)
    changed = {path for path, data in content(place).items() if before.get(path) != data}
    assert [path for path in changed if not path.startswith((*WRITES.get(tool, ()), NOTE))] == []


def test_events_of_a_file_beside_the_rules_are_those_of_who_writes_rules(place, tmp_path, buckets):
    """What lies in the rules' folder was put there by somebody who may write it; what lies elsewhere is not read."""
    shutil.copytree(place / "job", tmp_path / "job")
    rules = tmp_path / "job" / "rules.yaml"
    test = "  - {name: two, rules: [often], given: {file: FILE}, expect: {alerts: []}}\n"
    (tmp_path / "elsewhere.jsonl").write_text((place / "secret.jsonl").read_text())
    (tmp_path / "job" / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    (tmp_path / "job" / "near.jsonl").symlink_to("secret.jsonl")
    text = rules.read_text()
    for file, code in {"secret.jsonl": 0, "near.jsonl": 0, "../elsewhere.jsonl": 1, "link.jsonl": 1}.items():
        rules.write_text(text + test.replace("FILE", file))
        ran = buckets("rules", "test", str(rules), "--schema", str(tmp_path / "job" / "schema.yaml"))
        assert ran.code == code, (file, ran.err)
        assert ("leads out of the folder" in ran.err) == (code == 1), file
        assert SECRET not in ran.out + ran.err
