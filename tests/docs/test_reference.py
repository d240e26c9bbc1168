"""The reference says what the code does, and the runbook has what the program says."""

import ast
import json
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from buckets.config.engine import WIDEST_MS
from buckets.config.kafka import SHORTEST_DELIVERY_MS
from buckets.config.output import LEAST_KEPT_MS
from buckets.config.settings import SHORTEST_STALL_MS, JobSettings
from buckets.duration import format_duration
from buckets.events.schema import EventSchema
from buckets.exit_codes import DONE, FAILED, INTERRUPTED, MISUSED
from buckets.expressions.parser import FUNCTIONS
from buckets.lint.lint import codes
from buckets.outputs.columns import OUTPUTS
from buckets.rules.feature import Feature
from buckets.rules.rule import Rule
from docs.reference import aggregates, commands, configuration, functions, lint_codes, outputs, python_api, rules
from docs.reference.models import model_table, submodels
from tests import published
from tests.docs.blocks import PAGES, ROOT
from tests.docs.commands import leaf


def fields_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def rows(page: str, heading: str) -> set[str]:
    """The first cells of the table below a heading."""
    section = page.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))


def test_the_configuration_has_every_field_of_every_part():
    page = configuration.configuration_page()
    assert rows(page, "The whole file") == fields_of(JobSettings)
    for path, model in submodels(JobSettings):
        assert fields_of(model) <= set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)), path
    for row in ("| `shards` | whole number | `16` |", "| `log` | [size", "| `allowed_lateness` | duration | `1h` |"):
        assert row.replace("[size", "size | `512MiB` |") in page


def test_limits_that_the_code_checks_by_itself_stand_in_the_configuration():
    page = configuration.configuration_page()
    for limit_ms in (SHORTEST_STALL_MS, SHORTEST_DELIVERY_MS, LEAST_KEPT_MS):
        assert re.search(rf"at\s+least {format_duration(limit_ms)}\b", page)
    assert f"1ms to {format_duration(WIDEST_MS)}" in page


def test_a_field_without_a_description_is_no_part_of_the_reference():
    class Bare(BaseModel):
        """Something.

        Attributes:
            said: what it is.
        """

        said: int = 1
        unsaid: int = 2

    with pytest.raises(KeyError, match="unsaid"):
        model_table(Bare)


def test_the_event_schema_has_every_field():
    page = configuration.event_schema_page()
    assert fields_of(EventSchema) <= set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))


def test_rules_have_every_field():
    page = rules.page()
    assert rows(page, "A rule") == fields_of(Rule)
    assert rows(page, "A feature") == fields_of(Feature)


def test_every_aggregate_has_a_row():
    assert [re.findall(r"`(\w+)`( \*)?", name)[0] for name, *_ in aggregates.rows()] == [
        (name, " *" if aggregate.needs_raw_events else "") for name, aggregate in AGGREGATES.items()
    ]


def test_the_page_of_functions_has_all_of_them():
    page = published.FUNCTIONS.read_text(encoding="utf-8")
    assert page == functions.page(), "run `python -m tests.published`"
    assert set(functions.CONDITIONS) == {*FUNCTIONS, "is_weekend", "lookup"}
    for name, (written, _, _) in functions.CONDITIONS.items():
        assert written.startswith(f"{name}(")
    known = [name for name, *_ in functions.feature_rows()]
    assert known == [f"`{name}`" for name in AGGREGATES]


def test_the_first_example_of_a_rule_names_the_functions_of_the_short_form():
    page = (PAGES / "guides" / "write-rules.md").read_text(encoding="utf-8")
    assert f"# {' | '.join(SHORT_FUNCTIONS)}\n" in page


def test_every_lint_code_has_a_section():
    page = lint_codes.page()
    assert re.findall(r"^## (B\d+): .* \{ #b\d+ \}$", page, re.MULTILINE) == list(codes())


def test_every_output_has_its_columns():
    page = outputs.page()
    for output in OUTPUTS:
        assert rows(page, f"`{output.name}`") == {column.name for column in output.columns} - {"source_order"}
    assert "events_in" in rows(page, "`batches`")


def test_every_command_has_a_section_with_its_options():
    page = commands.page()
    found = dict(commands.leaves())
    assert len(found) > 40
    for words, command in found.items():
        section = page.partition(f"\n## `{words}`\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            assert all(f"`{option}`" in section for option in parameter.opts if option.startswith("--")), words
    assert leaf(["rules", "check"])[0].params


def test_every_public_name_has_a_place():
    import buckets.spark

    origins = re.findall(r"^::: (\S+)$", python_api.page(), re.MULTILINE)
    public = [*buckets.__all__, *buckets.spark.__all__]
    assert sorted(origin.rpartition(".")[2] for origin in origins) == sorted(public)


def messages() -> Iterator[str]:
    """What the program can say: texts of its code, with `…` for what is put in, and messages that tests have seen."""
    for path in (ROOT / "buckets").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    for tests in json.loads((ROOT / "tests" / "messages.json").read_text(encoding="utf-8")).values():
        for said in tests.values():
            yield from [said] if isinstance(said, str) else said


def is_said(quoted: str, said: str) -> bool:
    """Whether a message has the words that are quoted; `…` stands for anything."""
    pattern = ".*".join(re.escape(part.strip()) for part in quoted.split("…"))
    return re.search(pattern, said, re.DOTALL) is not None


@pytest.mark.slow
def test_the_program_can_print_every_message_of_the_runbook():
    text = "\n".join(messages())
    quoted = re.findall(r"^### `(.*)` \{", (PAGES / "runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(quoted) > 40
    assert [words for words in quoted if not any(is_said(words, line) for line in text.split("\n"))] == []


@pytest.mark.slow
def test_the_program_can_give_every_reason_that_stands_among_the_faults():
    page = (PAGES / "reference" / "faults.md").read_text(encoding="utf-8")
    reasons = re.findall(
        r"^\| `(.*?)` \|", page.partition("## Why a row is not an event")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert len(reasons) > 3
    assert [words for words in reasons if not any(is_said(words, line) for line in messages())] == []


def test_the_exit_codes_are_those_of_the_command_line():
    page = (PAGES / "reference" / "faults.md").read_text(encoding="utf-8")
    codes_there = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert codes_there == [*map(str, (DONE, FAILED, MISUSED, INTERRUPTED))]


@pytest.mark.slow
def test_a_message_that_the_program_cannot_print_is_noticed():
    assert is_said("was made with …; go back", "checkpoint c was made with engine.shards 16, not 3; go back to that")
    assert not is_said("was made of …; go back", "checkpoint c was made with engine.shards 16, not 3; go back to that")
    assert not any(is_said("the moon is full", line) for line in messages())
