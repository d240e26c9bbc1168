"""A job without Spark that leaves behind what a real one does, and fills in the history of a rule while it goes on."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buckets.backfill.backfills import Builder
from buckets.events.schema import EventSchema
from buckets.rules.backfill import Wanted, begun, completed, refitted
from buckets.rules.change import RuleChange
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.archived_job import ArchivedJob
from tests.core.pipeline import Row
from tests.core.test_backfill import Feed, more_ready


class BackfilledJob(ArchivedJob):
    """Each batch takes in some of the history that it may; what is complete is gone over to with the next batch."""

    def __init__(self, folder: Path, schema: EventSchema, rng: random.Random, **engine: Any) -> None:
        super().__init__(folder, schema, **engine)
        self.engine = engine
        self.rng = rng
        self.chunks: dict[int, list] = {}
        self.ready: dict[int, int] = {}
        self.done: set[int] = set()
        self.hurries = False
        self._feed()

    def ask(self, asked: Rule) -> None:
        """Have the history of a rule in force filled in, from the next batch on."""
        there = next(rule for rule in self.pipeline.rule_set.rules if rule.rule_id == asked.rule_id)
        self._keep(begun(self.pipeline.rule_set, Wanted(there, None, "ann", "", 0), self.pipeline.batches))

    def change(self, asked: Sequence[RuleChange], arrived=()) -> None:
        before, lateness_ms = self.pipeline.rule_set, self.settings.allowed_lateness
        made = revise(before, asked, self.schema, arrived, lateness_ms)
        assert made.refused == []
        self._keep(refitted(before, made.rule_set, self.pipeline.batches), made.made)

    def batch(self, rows: Sequence[Row]) -> None:
        if self.done:
            self._keep(completed(self.pipeline.rule_set, self.done))
            self.done = set()
        for fill in self.pipeline.rule_set.fills:
            if fill.number not in self.chunks:
                self.chunks[fill.number], self.ready[fill.number] = self._chunks(fill), 0
        super().batch(rows)

    def _feed(self) -> None:
        """Have batches take in what there is of history."""
        self.score_batch = self.pipeline.score_batch
        self.pipeline.score_batch = self._score_batch

    def _keep(self, rule_set: RuleSet, made=()) -> None:
        """Have a version of the rules, written down before it is used."""
        before = self.pipeline.rule_set
        if rule_set is before:
            return
        if rule_set.version == before.version:
            rule_set = RuleSet.from_json(json.dumps(json.loads(rule_set.to_json()) | {"version": before.version + 1}))
        self.checkpoint.versions.keep(rule_set, made, self.pipeline.batches)
        self.pipeline.rule_set = self.checkpoint.versions.rule_set(rule_set.version)

    def _score_batch(self, batches, rule_set):
        results = self.score_batch(batches, rule_set, self._feeds())
        by_fill: dict[int, list[bool]] = {}
        for each in map(json.loads, results.fills):
            by_fill.setdefault(each["fill"], []).append(each["done"])
        self.done = {number for number, each in by_fill.items() if all(each)}
        return results

    def _feeds(self):
        chosen = more_ready(self.chunks, self.ready, self.rng, self.hurries)
        return lambda shard: {number: Feed(*each, shard) for number, each in chosen.items()}

    def _chunks(self, fill) -> list:
        rule_set = self.pipeline.rule_set
        group, size = rule_set.filling[fill.number], self.rng.choice([1, 5, 16])
        required = self.settings.required(rule_set.needed_fields)
        builder = Builder(group, required, self.schema, self.settings.shards, size)
        tables = self.archive.under(self.schema.new_names).tables(0, self.archive.end())
        return list(builder.chunks(tables, {}, lambda pinned: self.lists))
