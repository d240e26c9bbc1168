"""An exception that says nothing, or many lines, is still said in one line, wherever a message is made of it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

import buckets
from buckets.changes import origin as rule_origin
from buckets.delta import whole_table
from buckets.errors import BucketsError, first_line
from buckets.events import event_file, parquet_rows
from buckets.feeds.rules import rule_book
from buckets.outputs import recorded_outputs
from buckets.rules.revision import Change
from tests.core.examples import SCHEMA, rule

SILENT = [OSError(), OSError(""), OSError("\n \n")]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\nb"), "a"),
        (ValueError("\n  a \nb"), "a"),
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (AssertionError(""), "AssertionError"),
    ],
)
def test_the_first_line_of_an_exception_is_what_it_says_or_its_kind(error, line):
    assert first_line(error) == line


def test_first_lines_are_taken_in_one_place():
    """`str(error).splitlines()[0]` fails where the exception has no text, and hides it."""
    folder = Path(buckets.__file__).parent
    taken = re.compile(r"splitlines\(\)\[0\]|\bcause\[0\]")
    assert [path.name for path in folder.rglob("*.py") if taken.search(path.read_text(encoding="utf-8"))] == []


@pytest.fixture
def table(tmp_path) -> Path:
    """A Delta table of rules, without any."""
    path = tmp_path / "alerts"
    write_deltalake(path, pa.Table.from_pylist([], schema=rule_book.COLUMNS))
    return path


def fails(error: Exception):
    def fail(*arguments, **named):
        raise error

    return fail


@pytest.mark.parametrize("error", SILENT)
def test_a_table_of_rules_that_fails_without_a_word(table, monkeypatch, error, as_worded):
    opened = rule_book.open_rule_table(table)
    monkeypatch.setattr(whole_table, "QueryBuilder", fails(error))
    with pytest.raises(BucketsError, check=as_worded):
        rule_book.read_rule_rows(opened)
    monkeypatch.setattr(whole_table, "DeltaTable", fails(error))
    with pytest.raises(BucketsError, check=as_worded):
        rule_book.open_rule_table(table)


@pytest.mark.parametrize("error", SILENT)
def test_a_table_of_rules_that_cannot_be_written_without_a_word(table, monkeypatch, error, as_worded):
    job = SimpleNamespace(settings=SimpleNamespace(rules=SimpleNamespace(table=table, topic=None)))
    monkeypatch.setattr(rule_origin.TableRules, "_write", fails(error))
    made = Change("delete", "a", 1, rule("a"), None, "", "", None, "")
    with pytest.raises(BucketsError, check=as_worded):
        rule_origin.job_rules(job).publish([], [made])


@pytest.mark.parametrize("error", [DeltaError(), DeltaError("\n")])
def test_results_that_fail_without_a_word(table, monkeypatch, error, as_worded):
    monkeypatch.setattr(recorded_outputs, "open_table", fails(error))
    with pytest.raises(BucketsError, check=as_worded):
        recorded_outputs.read_rows(table.parent, "alerts", ["rule_id"])


@pytest.mark.parametrize("error", SILENT)
def test_a_parquet_file_that_fails_without_a_word(tmp_path, monkeypatch, error, as_worded):
    (tmp_path / "events.parquet").write_bytes(b"x")
    monkeypatch.setattr(parquet_rows.pq, "ParquetFile", fails(error))
    with pytest.raises(BucketsError, check=as_worded):
        event_file.open_event_file(tmp_path / "events.parquet", SCHEMA)
