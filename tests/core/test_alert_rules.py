"""Rules over alerts: as a loop over lists has them, in any cut, in any number of shards, and after any restart."""

import copy
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.checkpoint.driver_state import DriverState
from buckets.engine.stages.in_memory import DriverStore
from buckets.outputs import columns
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.alert_rules import ENGINE, SCHEMA, Loop, Row, cut, rule_set, rules, score_of, streams
from tests.core.pipeline import Pipeline
from tests.laws import examples

CUTS = st.lists(st.integers(1, 20), max_size=4)
LATE = st.sampled_from(["add", "evaluate"])


def found(job: Pipeline, rules: list[Rule]) -> list[Any]:
    """Evaluations and alerts in arrival order: rule, event, the rule of the alert that is counted, values, fired."""
    alerts = [*job.output(columns.ALERTS), *job.output(columns.SHADOW_ALERTS)]
    raised_by = {alert["alert_id"]: alert["rule_id"] for alert in alerts}
    assert len(raised_by) == len(alerts)
    order = {rule.rule_id: index for index, rule in enumerate(rules)}
    rows = []
    for row in job.output(columns.EVALUATIONS):
        terms = None if row["terms"] is None else [_value(term) for term in json.loads(row["terms"])]
        counted = raised_by.get(row["event_id"], "")
        rows.append((row["position"], row["rule_id"], counted, terms or [row["value"]], row["fired"]))
    rows.sort(key=lambda row: (row[0], row[2] != "", order.get(row[2], 0), order[row[1]]))
    fired = [(position, rule_id) for position, rule_id, _, _, is_fired in rows if is_fired]
    assert sorted((alert["position"], alert["rule_id"]) for alert in alerts) == sorted(fired)
    return rows


def _value(term: dict[str, Any]) -> Decimal | None:
    return None if term["value"] is None else Decimal(term["value"])


def expected(rules: list[Rule], rows: list[Row], late: str) -> tuple[list[Any], int]:
    loop = Loop(rules, late)
    order = {rule.rule_id: index for index, rule in enumerate(rules)}
    results = [
        (at["position"], rule.rule_id, at.get("alert_rule", ""), values, fired)
        for row in rows
        for rule, at, values, fired in loop.arrive(row)
    ]
    results.sort(key=lambda row: (row[0], row[2] != "", order.get(row[2], 0), order[row[1]]))
    return results, loop.missing


def scores(rules: list[Rule], rows: list[Row], late: str) -> list[tuple[int, str, int]]:
    """Each alert with its score."""
    loop = Loop(rules, late)
    arrived = (each for row in rows for each in loop.arrive(row))
    return sorted((at["position"], rule.rule_id, score_of(rule, at, of)) for rule, at, of, fired in arrived if fired)


def run(version: RuleSet, batches: list[list[Row]], late: str, shards: int = 3) -> Pipeline:
    job = Pipeline(version, SCHEMA, **ENGINE | {"late": late, "shards": shards})
    for batch in batches:
        job.batch([batch])
    return job


@settings(max_examples=examples(150))
@given(rules(), streams(), CUTS, LATE, st.sampled_from([1, 2, 7]))
def test_rules_over_alerts_as_a_loop_over_lists_has_them_in_any_cut(rules, rows, cuts, late, shards):
    job = run(rule_set(rules), cut(rows, cuts), late, shards)
    results, missing = expected(rules, rows, late)
    assert found(job, rules) == results
    raised = [row for output in (columns.ALERTS, columns.SHADOW_ALERTS) for row in job.output(output)]
    assert sorted((row["position"], row["rule_id"], row["score"]) for row in raised) == scores(rules, rows, late)
    groups = {account.group: 0 for account in job.accounts[-1].groups}
    for account in job.accounts:
        for group in account.groups:
            groups[group.group] += group.no_key
    assert sum(groups.values()) == missing
    whole = run(rule_set(rules), [rows], late)
    for output in (columns.ALERTS, columns.SHADOW_ALERTS, columns.EVALUATIONS, columns.DEAD_LETTERS):
        assert sorted(map(repr, job.output(output))) == sorted(map(repr, whole.output(output)))


@settings(max_examples=examples(60))
@given(rules(), streams(), CUTS, LATE, st.data())
def test_a_job_that_dies_goes_on_from_what_the_driver_has_written_as_if_nothing_had_happened(
    rules, rows, cuts, late, data
):
    batches = cut(rows, cuts)
    undisturbed = run(rule_set(rules), batches, late)
    with tempfile.TemporaryDirectory() as folder:
        job = Pipeline(rule_set(rules), SCHEMA, **ENGINE | {"late": late})
        driver, number = DriverStore(DriverState(Path(folder))), 0
        while number < len(batches):
            before = copy.deepcopy((job.stores, job.found, job.batches, job.accounts))
            job.driver = driver.of_batch(number)
            job.batch([batches[number]])
            dies = data.draw(st.sampled_from(["no", "no", "before", "after"]))
            if dies != "before":
                driver.keep(number)
            if dies != "no":
                job.stores, job.found, job.batches, job.accounts = before
                driver = data.draw(st.sampled_from([driver, DriverStore(DriverState(Path(folder)))]))
                if dies == "after":
                    job.driver = driver.of_batch(number)
                    job.batch([batches[number]])
                    driver.keep(number)
                    number += 1
            else:
                number += 1
    assert job.found == undisturbed.found
    assert job.accounts == undisturbed.accounts
