"""Explanations of rules whose history was filled in: before, during and after that, what was recorded is computed."""

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from buckets.rules.change import RuleChange
from buckets.rules.completeness import stretches_of
from buckets.rules.renaming import renamed_rule
from buckets.rules.rule import Rule
from tests.core.alert_rules import SCHEMA, Row
from tests.core.backfilled_job import BackfilledJob
from tests.core.past import explainer_of
from tests.core.test_explanation import Outcomes, check_windows, engines, rules, streams
from tests.laws import examples

LAW = settings(max_examples=examples(12), deadline=None, derandomize=True, phases=[Phase.generate])
NAMES = {"payer": "zz", "kind": "a kind", "amount": 'value in "cents"', "id": "key", "t": "at"}
IN_FORCE = ("ACTIVE", "SHADOW")


def arrived(rows: list[Row]) -> Any:
    return stretches_of(np.array([row["t"] for row in rows], np.int64))


def filled_job(
    folder: Path, seed: int, first: list[Rule], asked: Rule, rows: list[Row], renamed: bool = False, **engine: Any
) -> BackfilledJob:
    """A job in which a rule comes later than others, and then its history; what it keeps may begin again at last.

    Fields may get other names meanwhile, and their old ones back.
    """
    rng = random.Random(seed)
    job = BackfilledJob(folder, SCHEMA, rng, **engine)
    job.take(first)
    size = rng.choice([1, 2, 4])
    cuts = range(0, len(rows), size)
    comes = rng.randrange(1, max(2, len(cuts) // 2))
    fills, hurries = comes + rng.choice([0, 1, 3]), rng.randrange(comes, len(cuts) + 1)
    cleared = rng.choice([None, None, rng.randrange(len(cuts) + 1)])
    renamings = sorted(rng.sample(range(1, len(cuts) + 1), min(2, len(cuts)))) if renamed else []
    names: dict[str, str] = {}
    for number, start in enumerate(cuts):
        before = rows[:start]
        if number in renamings and not job.pipeline.rule_set.fills:
            job.rename({new: old for old, new in names.items()} if names else NAMES)
            names = {} if names else NAMES
        if number == comes:
            asked = renamed_rule(asked, names)
            job.take([*job.pipeline.rule_set.rules, asked], arrived(before))
        if number == fills:
            job.ask(asked)
        if number == cleared:
            rule_id = rng.choice([rule.rule_id for rule in job.pipeline.rule_set.rules if rule.state != "DRAFT"])
            job.change([RuleChange.model_validate({"change": "clear_state", "rule_id": rule_id})], arrived(before))
        job.hurries = number >= hurries
        job.batch([{names.get(name, name): value for name, value in row.items()} for row in rows[start : start + size]])
    return job


@pytest.mark.slow
@LAW
@given(
    st.integers(0, 2**32),
    st.tuples(rules("r0"), rules("r1")).filter(lambda both: any(rule.state != "DRAFT" for rule in both)),
    rules("asked").filter(lambda rule: rule.state in IN_FORCE),
    streams(),
    engines(),
    st.booleans(),
    st.booleans(),
)
def test_every_result_of_a_job_with_a_fill_is_computed_again(seed, first, asked, rows, engine, recorded, renamed):
    with tempfile.TemporaryDirectory() as folder:
        job = filled_job(Path(folder), seed, list(first), asked, rows, renamed, **engine)
        explainer, outcomes = explainer_of(job, Path(folder) / "results", recorded), Outcomes(job)
        by_position = {row["position"]: row for row in reversed(rows)}
        firsts = {_name(row): row["position"] for row in reversed(rows)}
        # A track that is new in a group with older events has no value of those; such a result says `warm: false`.
        others = {frozenset(fields) for rule in first for fields, _ in rule.groupings()}
        is_alone = others.isdisjoint(frozenset(fields) for fields, _ in asked.groupings())
        chosen = {what for what in outcomes.evaluated if firsts[_name(by_position[what[0]])] == what[0]}
        of_asked = sorted(what for what in chosen if what[1] == "asked")
        for what in [*of_asked[:: max(1, len(of_asked) // 6)], *sorted(chosen.difference(of_asked))[:2]]:
            row = by_position[what[0]]
            found = explainer.event(row["id"], what[1], row["t"])
            if not renamed:
                check_windows(found, rows)
            outcomes.check(found, what, explainer)
            if is_alone and what[1] == "asked":
                assert all(each.comparison.equal for each in found.features), found.features


def _name(row: Row) -> tuple[str, int]:
    return row["id"], row["t"]
