"""CONTRIBUTING says how an aggregate is added; here that is done, as it is written, in a copy of the repository."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("buckets", "docs", "tests", "schemas", "conf", "pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md")
UNCOPIED = shutil.ignore_patterns("__pycache__", "*.ipynb", ".build", "site")
RECIPE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("### Add a function")[2].partition("\n#")[0]
FILES = dict(re.findall(r"`(\S+\.py)`:\n\n```python\n(.*?)```", RECIPE, re.DOTALL))
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", RECIPE, re.DOTALL | re.MULTILINE)
COMMANDS = next(block for language, block in BLOCKS if not language).splitlines()
WRITTEN = {"schemas/rule-change-v1.json", "docs/pages/reference/functions.md"}
LISTED = "docs/pages/guides/write-rules.md"
"""The page whose first example names the functions of the short form."""
PAGE = 'python -c "from docs.reference import aggregates; print(aggregates.page())"'

RANGE = '''"""The largest value less the smallest one."""

from collections.abc import Mapping
from decimal import Decimal

from buckets.aggregates.aggregate import Aggregate, Own, ValueRange, Values
from buckets.aggregates.component import EVENTS, MAX, MIN, Component, Computed, with_value
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number


class _Range(Aggregate):
    description = "The largest value less the smallest one."
    phrase = "the range of"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        ends = ("value", "value") if counts_all else ("greatest", "least")
        return (Component(MAX, ends[0]), Component(MIN, ends[1]), EVENTS)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        most, least, count = computed.values()
        events = with_value(most, count)
        return Values(
            scaled=most.whole - least.whole,
            scale=own.scale,
            valid=events.whole > 0,
            lower=(most.lower_whole - least.upper_whole).clip(min=0),
            upper=most.upper_whole - least.lower_whole,
            may_be_null=events.fewest == 0,
            exact=most.exact & least.exact & (events.fewest == events.most),
        )

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_number(max(events.values) - min(events.values), scale) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return ValueRange(lower=Decimal(0))


AGGREGATES = {"range": _Range()}
'''
TEST_OF_RANGE = '''"""The largest value less the smallest one."""

from tests.core.aggregates.oracle import of_values, values_at

ORACLES = {"range": of_values(lambda values: max(values) - min(values))}


def test_the_range_grows():
    assert values_at("range", ["3.00", "1.00", "2.00", "5.00"], of="amount") == [0, 2, 2, 4]
'''
OF_NEW_KIND = {"buckets/aggregates/range.py": RANGE, "tests/core/aggregates/test_range.py": TEST_OF_RANGE}


@pytest.fixture
def copy(tmp_path):
    """The repository without what is made in it."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=UNCOPIED)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def texts(folder: Path) -> dict[str, bytes]:
    paths = (path for name in COPIED for path in [folder / name, *(folder / name).rglob("*")])
    kept = (path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def run(folder: Path, command: str) -> str:
    """Run a command of the recipe in a folder."""
    program = [sys.executable] if command.startswith("python ") else [sys.executable, "-m", "pytest"]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    options = [*program, *shlex.split(command)[1:]]
    ended = subprocess.run(options, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stdout[-4000:]}{ended.stderr[-2000:]}"
    return ended.stdout


def test_the_recipe_names_an_aggregate_and_its_test():
    assert list(FILES) == ["buckets/aggregates/largest.py", "tests/core/aggregates/test_largest.py"]
    assert COMMANDS[0].startswith("python ")
    assert len(COMMANDS) == 2


@pytest.mark.slow
@pytest.mark.nightly
def test_an_aggregate_is_one_file_and_its_test(copy):
    """That of the recipe, which rules in both forms may have, and one that is computed in a new way."""
    before = texts(copy)
    for name, text in (FILES | OF_NEW_KIND).items():
        (copy / name).write_text(text, encoding="utf-8")
    (names,) = re.findall(r"`(avg \|[^`]*)`", RECIPE)
    page, found = re.subn(r"(?m)^    # avg \|.*$", f"    # {names}", (copy / LISTED).read_text(encoding="utf-8"))
    assert found == 1
    (copy / LISTED).write_text(page, encoding="utf-8")
    (published, tests) = COMMANDS
    run(copy, published)
    assert "passed" in run(copy, f"{tests} -p no:cacheprovider")
    after = texts(copy)
    assert {name for name in after if after[name] != before.get(name)} - WRITTEN == {*FILES, *OF_NEW_KIND, LISTED}
    assert "| `largest` | The largest value. | number | of no event |" in run(copy, PAGE)
    schema = after["schemas/rule-change-v1.json"].decode()
    assert schema.count('"largest"') == 2
    assert schema.count('"range"') == 1
