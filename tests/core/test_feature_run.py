"""Features of an archive are those that the job computed when the events arrived."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from buckets.archive.history import History
from buckets.history import scoring
from buckets.history.features import FeatureRun
from buckets.history.scoring import score_archive
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.rule import Rule
from tests.core.archived_job import ArchivedJob
from tests.core.examples import SCHEMA, rule

FEATURES = {
    "total": {"function": "sum", "of": "amount", "window": "1h"},
    "spread": {"function": "stddev", "of": "amount", "window": "30m"},
    "new": {"function": "is_first", "window": "1h"},
    "others": {"function": "count_distinct", "of": "payer", "window": "1h", "group_by": ["kind"]},
}
RULES = [
    rule("plain", length="10m"),
    rule("average", length="1h", aggregate={"function": "avg", "measure": "amount"}, where={"kind": "a"}),
    Rule.model_validate({"rule_id": "wide", "group_by": ["payer"], "features": FEATURES, "when": "total > 20"}),
]


def rows() -> list[dict[str, Any]]:
    """Payments of which some are late, some come twice and one has no payer."""
    found = [
        {
            "id": f"e{n}",
            "at": 1_700_000_000_000 + n * 60_000,
            "payer": f"p{n % 3}",
            "kind": "ab"[n % 2],
            "amount": f"{n}.5",
        }
        for n in range(60)
    ]
    found[20]["at"] -= 600_000
    found[40]["payer"] = None
    found.insert(30, dict(found[27]))
    return [row | {"position": number} for number, row in enumerate(found)]


@pytest.fixture
def history(tmp_path) -> tuple[ArchivedJob, History]:
    return archived(tmp_path)


def archived(folder) -> tuple[ArchivedJob, History]:
    job = ArchivedJob(folder, SCHEMA, shards=3, allowed_lateness="1h")
    job.take(RULES)
    for start in range(0, 61, 17):
        job.batch(rows()[start : start + 17])
    return job, History(None, job.archive, job.recorded)


def features(
    history: History, ids: list[str] | None = None, score=score_archive
) -> tuple[FeatureRun, list[dict[str, Any]]]:
    terms = history.recorded.terms(0)
    rule_set = history.recorded.rule_set(history.recorded.cuts[-1].ruleset_version)
    chosen = None if ids is None else pa.array(ids)
    run = FeatureRun(rule_set, terms.event_schema, terms.engine, chosen, flags=False)
    return run, pa.concat_tables(run.tables_of(history, score)).to_pylist()


@pytest.mark.parametrize("joined", [7, 500_000])
def test_features_of_an_archive_are_the_recorded_evaluations(history, monkeypatch, joined):
    monkeypatch.setattr(scoring, "JOINED_ROWS", joined)
    job, past = history
    run, found = features(past)
    assert [row["position"] for row in found] == list(range(61))
    assert [row["event_id"] for row in found] == [row["id"] for row in rows()]
    recorded: dict[int, dict[str, Any]] = {}
    for row in job.pipeline.output(EVALUATIONS):
        of_event, terms = recorded.setdefault(row["position"], {}), json.loads(row["terms"] or "[]")
        of_event[f"{row['rule_id']}.fired"] = row["fired"]
        for term in terms or [{"name": "value", "value": row["value"]}]:
            text = term["value"]
            of_event[f"{row['rule_id']}.{term['name']}"] = Decimal(text) if isinstance(text, str) else text
    told = {
        row["position"]: {name: row[name] for name in row if "." in name and row[name] is not None} for row in found
    }
    known = {at: {name: each for name, each in row.items() if each is not None} for at, row in recorded.items()}
    assert {at: row for at, row in told.items() if row} == known
    assert {found[at]["outcome"] for at in known} == {"evaluated"}
    assert run.outcomes == {"evaluated": 58, "late": 1, "duplicate": 1, "filtered": 1}
    assert run.arrived == 61


def test_the_events_that_are_named_get_a_row_each_and_those_that_never_came_none(history):
    _, past = history
    everything = {row["event_id"]: row for row in features(past)[1] if row["outcome"] != "duplicate"}
    run, found = features(past, ["e27", "e20", "e55", "never"])
    assert found == [everything["e20"], everything["e27"], everything["e55"]]
    assert run.arrived == 61
