"""Texts that features keep: as they came, in pages, behind buckets, of other columns, and where they are not known."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.compiled import compiled
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import EVALUATIONS
from buckets.rule_files.yaml_rules import load_rule_file
from buckets.rule_tests.tester import RuleTester
from buckets.rules.change import changes_between
from buckets.rules.group import Group
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet, first_rule_set
from buckets.timeline.head import read_cells, write_cells
from buckets.timeline.inspection import texts_at
from buckets.timeline.timeline import NO_ID, is_null, new_timeline, push, set_null, text_place
from tests.core.streams import CARDS, Row, card_stream, table_of
from tests.laws import examples

FUNCTIONS = ("first", "last", "mode", "previous")
TEXTS = ["DE", "AT", "", "01", "1", "Łódź 銀行", "x" * 300, "a\0b", None]


def rule(window: str, **more: Any) -> Rule:
    features = {name: {"function": name, "of": "text", "window": window} for name in FUNCTIONS}
    features |= {f"{name}_flagged": each | {"where": "flag"} for name, each in features.items()}
    features["frequent"] = {"function": "mode", "of": "flag", "window": window}
    features["sum"] = {"function": "sum", "of": "amount", "window": "10m"}
    written = {"rule_id": "r", "group_by": ["card"], "features": features, "when": "sum IS NOT NULL OR previous = '01'"}
    return Rule.model_validate(written | more)


def values_of(rows: list[Row], own: Row) -> dict[str, Any]:
    """The features of some events by a loop over a list."""
    found: dict[str, Any] = {}
    for end, counted in (("", rows), ("_flagged", [row for row in rows if row["flag"]])):
        texts = [row["text"] for row in counted if row["text"] is not None]
        before = [row["text"] for row in counted[: _before(counted, own)] if row["text"] is not None]
        found[f"first{end}"], found[f"last{end}"] = (texts[0], texts[-1]) if texts else (None, None)
        found[f"previous{end}"] = before[-1] if before else None
        found[f"mode{end}"] = most_frequent(texts)
    return found | {"frequent": most_frequent([row["flag"] for row in rows])}


def _before(counted: list[Row], own: Row) -> int:
    return next((at for at, row in enumerate(counted) if row is own), len(counted))


def most_frequent(values: list[Any]) -> Any:
    times = Counter(values)
    return next((value for value in reversed(values) if times[value] == max(times.values())), None)


def expected(rows: list[Row], length_ms: int) -> list[dict[str, Any]]:
    found, arrived = [], list[Row]()
    for own in rows:
        arrived.append(own)
        same = [row for row in arrived if row["card"] == own["card"]]
        inside = [row for row in same if own["time"] - length_ms <= row["time"] <= own["time"]]
        found.append(values_of(sorted(inside, key=lambda row: row["time"]), own))
    return found


def in_order(evaluations: pa.Table) -> list[Row]:
    return sorted(evaluations.to_pylist(), key=lambda row: row["position"])


def run(rows: list[Row], cuts: list[int], each: Rule, **engine: Any) -> list[dict[str, Any]]:
    evaluator = buckets.Evaluator([each], CARDS, buckets.EngineSettings.model_validate(engine))
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        for row in in_order(evaluator.recorded(table_of(rows[begin:end], CARDS)).evaluations):
            terms = json.loads(row["terms"])
            assert all(term["exact"] for term in terms if term["name"] != "sum")
            assert all((term.get("type") == "text") == (term.get("of") == "text") for term in terms)
            found.append({term["name"]: term["value"] for term in terms if term["name"] != "sum"})
    return found


@settings(max_examples=examples(8))
@given(st.integers(0, 2**32), st.lists(st.integers(1, 1_500), max_size=6, unique=True).map(sorted))
def test_texts_are_those_of_a_loop_over_a_list_behind_pages_and_buckets(seed, cuts):
    """The window takes several pages, and what is older than the tail is folded."""
    rows = card_stream(np.random.default_rng(seed), 1_600, TEXTS, 2_000)
    settings = {"late": "evaluate", "allowed_lateness": "2s", "precision": {"tail": "63s", "resolution": "7s"}}
    assert run(rows, cuts, rule("60s"), **settings) == expected(rows, 60_000)


def test_what_is_told_as_exact_behind_a_tail_that_was_made_longer_is_so():
    rows, first, then = card_stream(np.random.default_rng(1), 400, TEXTS, 1), rule("5s"), rule("20s")
    engines = [{"precision": {"tail": tail, "resolution": "7s"}, "shards": 1} for tail in ("5s", "60s")]
    scorers = [Scorer(CARDS, buckets.EngineSettings.model_validate(each), evaluations=True) for each in engines]
    rule_set = revise(RuleSet(0, (), (), {}), changes_between((), [first]), CARDS, (), 0).rule_set
    job, found = InMemoryJob(scorers[0]), list[Row]()
    for scorer, part in zip(scorers, (rows[:300], rows[300:]), strict=True):
        job.scorer = scorer
        results = job.score_batch(table_arrivals(table_of(part, CARDS), CARDS), rule_set)
        packed = results.payloads[EVALUATIONS]
        found += in_order(OutputDecoder(rule_set, CARDS, scorer.engine).table(EVALUATIONS, packed))
        changes = changes_between(rule_set.rules, [then])
        rule_set = revise(rule_set, changes, CARDS, results.account.arrived, 0).rule_set
    terms, exact = [json.loads(row["terms"]) for row in found[300:]], Counter[bool]()
    for known, right in zip(terms, expected(rows, 20_000)[300:], strict=True):
        for term in known:
            if term.get("type") == "text":
                assert not term["exact"] or term["value"] == right[term["name"]]
                assert "lower" not in term
                exact[term["exact"]] += 1
    assert min(exact[True], exact[False]) > 50


def test_columns_of_texts_are_known_when_no_rule_reads_them_any_more():
    group = first_rule_set([rule("5s")]).groups[0]
    without = Group(**{name: getattr(group, name) for name in group.__dataclass_fields__} | {"rules": ()})
    assert without.text_columns(CARDS) == group.text_columns(CARDS)
    assert sum(group.text_columns(CARDS)) == 2


CELLS = st.lists(st.tuples(st.sampled_from(TEXTS), st.booleans()), max_size=20)
new_timeline, push, set_null, is_null = map(compiled, (new_timeline, push, set_null, is_null))
read_cells, write_cells = map(compiled, (read_cells, write_cells))


@given(CELLS, st.integers(0, 20), st.sampled_from([0, 1, 2]))
def test_texts_of_a_page_are_read_as_they_were_written(cells, skipped, columns):
    """Columns are a text and a number; a reader may know less of them, and pass over the oldest cells."""
    pool = np.frombuffer(b"id" + b"".join((text or "").encode() for text, _ in cells), np.uint8)
    timeline = new_timeline(len(cells), np.zeros(2, np.bool_), np.array([True, False]))
    at = 2
    for cell, (text, _) in enumerate(cells):
        timeline.first_ms[cell] = timeline.last_ms[cell] = cell
        timeline.id_start[cell], timeline.id_length[cell], timeline.owner[cell] = 0, 2, -1
        length = len((text or "").encode())
        timeline.extremes[:, 0, cell], timeline.extremes[:, 1, cell] = text_place(at, length) if length else 0, cell
        at += length
        if text is None:
            set_null(timeline, 0, cell)
        push(timeline, np.int64(1))
    out = np.zeros(20_000, np.uint8)
    end = write_cells(out, 5, timeline, 0, len(cells), pool)
    other = new_timeline(len(cells), np.zeros(columns, np.bool_), np.array([True, False])[:columns])
    read_cells(out[:end], 5, other, np.int32(-1), np.int64(skipped))
    kept = cells[skipped:]
    assert other.size[0] == len(kept)
    if columns:
        found = texts_at(out, np.where(other.extremes[0, 0, : len(kept)] < 2**62, other.extremes[0, 0, : len(kept)], 0))
        nulls = [bool(is_null(other, 0, cell)) for cell in range(len(kept))]
        assert [None if null else text for null, text in zip(nulls, found, strict=True)] == [text for text, _ in kept]
        assert (other.id_length[: len(kept)] != NO_ID).all()


@pytest.mark.parametrize("garbage", [2**40, -5, 10**6])
def test_a_number_where_a_text_should_be_is_an_empty_text(garbage):
    """As in a column that held numbers when it was written."""
    numbers, texts = np.array([False]), np.array([True])
    timeline = new_timeline(1, np.zeros(1, np.bool_), numbers)
    timeline.first_ms[0] = timeline.last_ms[0] = 0
    timeline.id_start[0], timeline.id_length[0], timeline.owner[0] = 0, 1, -1
    timeline.extremes[:, 0, 0] = garbage
    push(timeline, np.int64(1))
    out = np.zeros(100, np.uint8)
    end = write_cells(out, 0, timeline, 0, 1, np.frombuffer(b"i", np.uint8))
    other = new_timeline(1, np.zeros(1, np.bool_), texts)
    read_cells(out[:end], 0, other, np.int32(-1), np.int64(-(2**62)))
    assert other.extremes[:, 0, 0].tolist() == [0, 0]


def test_a_test_of_rules_expects_texts_as_they_are_written_and_numbers_by_their_value(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(
        """
rules:
  - rule_id: moved
    group_by: [card]
    features:
      before: {function: previous, of: text, window: 1h}
      sum: {function: sum, of: amount, window: 1h}
    when: text <> before
tests:
  - name: a text of digits
    given:
      - {id: a, time: 1000, card: c, text: "01", amount: 1}
      - {id: b, time: 2000, card: c, text: "1", amount: 1.5}
    expect: {alerts: [{event: b, features: {before: "EXPECTED", sum: 2.50}}]}
""",
        encoding="utf-8",
    )
    found = {}
    for expected in ("01", "1", "1.0"):
        text = path.read_text(encoding="utf-8").replace("EXPECTED", expected)
        (tmp_path / "one.yaml").write_text(text, encoding="utf-8")
        file = load_rule_file(tmp_path / "one.yaml")
        found[expected] = RuleTester(file, CARDS, buckets.EngineSettings()).run(0).status
    assert found == {"01": "passed", "1": "failed", "1.0": "failed"}
