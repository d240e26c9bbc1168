"""Files of JSON lines are put in place together, or not at all."""

import pytest

from buckets.outputs.messages import OUTPUTS, JsonFiles, JsonLines
from buckets.rules.rule_set import first_rule_set
from tests.core.examples import SCHEMA, rule


@pytest.fixture
def files(tmp_path) -> JsonFiles:
    (tmp_path / "alerts.jsonl").write_text("of an earlier run\n")
    return JsonFiles(tmp_path, JsonLines(first_rule_set([rule()]), SCHEMA))


def test_all_outputs_are_there_in_the_end(files, tmp_path):
    with files:
        assert (tmp_path / "alerts.jsonl").read_text() == "of an earlier run\n"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {f"{name}.jsonl": "" for name in OUTPUTS}
    assert files.lines == dict.fromkeys(OUTPUTS, 0)


def test_what_fails_leaves_earlier_files_as_they_are(files, tmp_path):
    with pytest.raises(KeyboardInterrupt), files:
        raise KeyboardInterrupt
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("alerts.jsonl", "of an earlier run\n")]
