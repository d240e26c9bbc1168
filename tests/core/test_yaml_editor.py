"""Changes to the text of a rule file: any policy can become any other one, and comments of other lines stay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.rule_files.yaml_editor import change_files
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.rule import Rule
from buckets.yaml_dialect import write_yaml
from tests.core.examples import written_rule

OTHER = """\
  - rule_id: other   # untouched
    group_by: []
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">", value: 9}
"""
BODY = """\
rules:
  # agreed on in May
  - rule_id: r   # the name
    group_by: [payer]   # by payer
    aggregate: {function: sum, measure: amount}
    # an hour
    window: {length: 1h}
    limit: {operator: ">", value: "100"}   # a hundred
"""
COMMENTS = ("# agreed on in May", "# the name", "# by payer", "# an hour", "# a hundred")
snoozes = st.fixed_dictionaries(
    {
        "key": st.builds(dict, payer=st.just("p")),
        "until": st.just("2026-01-01T00:00:00Z"),
        "reason": st.sampled_from(["x, y", "pay: day"]),
    }
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["ACTIVE", "SHADOW", "PAUSE", "DRAFT"]),
        "rollout": st.sampled_from(["10%", "0.5%", "100%"]),
        "cooldown": st.sampled_from(["1h", "90s"]),
        "severity": st.sampled_from(["low", "high"]),
        "tags": st.lists(st.sampled_from(["a", "b: c", "#d"]), max_size=3, unique=True),
        "reset_on_alert": st.booleans(),
        "effective": st.just({"from": "2026-01-01T00:00:00Z"}),
        "snoozes": st.lists(snoozes, max_size=2),
    },
)


def in_line(value: Any) -> str:
    return write_yaml([value], flow=True)[1:-1]


def text_of(policy: dict[str, Any], is_flow: bool, after: str) -> str:
    """A file whose first rule has a policy, each field on one line, or lists and mappings on several."""
    text = BODY
    for name, value in policy.items():
        if is_flow or not value or not isinstance(value, list | dict):
            text += f"    {name}: {in_line(value)}\n"
        elif isinstance(value, list):
            text += f"    {name}:\n" + "".join(f"      - {in_line(each)}\n" for each in value)
        else:
            text += f"    {name}:\n" + "".join(f"      {key}: {in_line(each)}\n" for key, each in value.items())
    return text + after


@given(policies, policies, st.booleans(), st.sampled_from(["", "    # at the end\n", OTHER]))
def test_any_policy_becomes_any_other_and_the_comments_of_a_rule_stay(tmp_path_factory, before, after, is_flow, rest):
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(text_of(before, is_flow, rest))
    wanted = Rule.model_validate(written_rule(**after))
    change_files(file, {}, [wanted], "", {})
    assert load_rules(file)[0] == wanted
    text = file.read_text()
    assert all(comment in text for comment in COMMENTS)
    assert text.endswith(rest) or not rest.startswith("  - ")


@pytest.mark.parametrize("state", ["DELETE", "PAUSE"])
def test_a_rule_that_somebody_has_taken_out_meanwhile_is_one_line(tmp_path, state, as_worded):
    (tmp_path / "rules.yaml").write_text(BODY + OTHER)
    change_files(tmp_path, {"other": "DELETE"}, [], "", {})
    with pytest.raises(BucketsError, check=as_worded):
        change_files(tmp_path, {"other": state}, [], "", {})
