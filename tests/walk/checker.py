"""Compares what a job has written of each batch with the mirror, column by column, and with the oracle.

The mirror is the engine itself in one process, so it knows every column, and the oracle is loops over lists. The oracle
decides what becomes of each payment in each group and of each alert in each group of alerts, which rules are evaluated,
the value of every window that is warm, and which policy holds an alert back. What it does not know, and the mirror
does: `held_back`, bounds as numbers (it sees that the value lies between them), values of results that are not warm,
and all that is text.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from buckets.outputs.columns import ALERTS, BATCHES
from buckets.rules.group import Group
from tests.walk.found import Difference, Row
from tests.walk.mirror import Mirror
from tests.walk.oracle_job import OracleJob
from tests.walk.rare import RarePaths, look_at
from tests.walk.recorded import RecordedBatch

SHOWN = 3


class Checker:
    """Compares batches, in their order."""

    def __init__(self, tables: Path, rare: RarePaths) -> None:
        self._tables, self._rare = tables, rare
        self._mirror = Mirror()
        self._oracle = OracleJob(rare)
        self._filled: set[str] = set()
        self._apart: set[tuple[str, str]] = set()
        self._rows: dict[str, int] = {}
        self._before: RecordedBatch | None = None

    def expect_backfill(self, rule_id: str) -> None:
        """From now on the history of a rule is filled in, which the mirror does not do."""
        self._filled.add(rule_id)

    def backfilled(self, from_batch: Mapping[str, int]) -> None:
        """From which batch on the history of rules has been filled in."""
        self._oracle.backfilled = dict(from_batch)

    def check(self, batches: list[RecordedBatch]) -> None:
        """Compare the tables with what has to be in them of some more batches.

        Raises:
            Difference: they differ; says in which batch and shows the first rows.
        """
        if not batches:
            return
        first, last = batches[0].number, batches[-1].number
        written = {path.name: self._written(path, first, last) for path in self._outputs()}
        for batch in batches:
            found = {name: by_batch.get(batch.number, []) for name, by_batch in written.items()}
            of_filled = {group.group_id for group in batch.rule_set.groups if _is_filled(group, self._filled)}
            of_filled |= {group.name for group in batch.rule_set.groups if group.group_id in of_filled}
            mirrored = self._mirror.score(batch)
            cold = _cold_events(found, mirrored) if self._filled else set()
            if cold:
                self._apart |= _keys_apart(batch, found[ALERTS], mirrored[ALERTS])
            for name, rows in mirrored.items():
                if name == BATCHES and (cold or self._apart):
                    continue
                mine, theirs = (
                    [row for row in _without(each, self._filled, of_filled, cold) if not self._is_apart(row)]
                    for each in (found[name], rows)
                )
                compare(batch.number, name, mine, theirs)
            self._oracle.check(batch, found, self._filled)
            look_at(self._rare, batch, self._before, found)
            self._before = batch
        for name in written:
            self._rows[name] = self._rows.get(name, 0) + sum(len(rows) for rows in written[name].values())
        self._nothing_twice(last)

    def _is_apart(self, row: Row) -> bool:
        """Whether a row is of a rule over alerts and a key whose alerts are not those of the mirror."""
        return (row.get("rule_id"), row.get("key")) in self._apart

    def _outputs(self) -> list[Path]:
        return [path for path in sorted(self._tables.iterdir()) if path.is_dir() and path.name != "rule_changes"]

    def _written(self, table: Path, first: int, last: int) -> dict[int, list[Row]]:
        """The rows of some batches in a table, by batch."""
        query = f"select * from rows where batch_id >= {first} and batch_id <= {last}"
        found: dict[int, list[Row]] = {}
        for row in _asked(table, query):
            found.setdefault(row["batch_id"], []).append(row)
        return found

    def _nothing_twice(self, last: int) -> None:
        """See that earlier batches have no more rows than when they were compared."""
        for table in self._outputs():
            query = f"select count(*) as n from rows where batch_id <= {last}"
            there = _asked(table, query)[0]["n"]
            if there != self._rows[table.name]:
                message = (
                    f"{table.name}: {there} rows of batches up to {last}, and {self._rows[table.name]} were compared"
                )
                raise Difference(message)


def _is_filled(group: Group, rules: set[str]) -> bool:
    return any(rule.rule_id in rules for rule in group.rules)


def _cold_events(*sides: Mapping[str, list[Row]]) -> set[str]:
    """The events of which some row is not warm.

    Timelines that are filled have votes in the shard's clock, so that idle keys of other groups may be evicted earlier
    or later than in the mirror, and what is not warm depends on that.
    """
    return {row["event_id"] for side in sides for rows in side.values() for row in rows if row.get("warm") is False}


def _keys_apart(batch: RecordedBatch, found: list[Row], mirrored: list[Row]) -> set[tuple[str, str]]:
    """The keys of rules over alerts, each with the rule, that an alert on one side falls into and none on the other.

    With `require_warm` an alert that is not warm does not count. The oracle goes by the alerts that there are.
    """
    mine, theirs = ({row["alert_id"]: row for row in rows} for rows in (found, mirrored))
    over = batch.rule_set.over_alerts
    events = [json.loads((mine | theirs)[alert_id]["event"]) for alert_id in mine.keys() ^ theirs.keys()]
    return {
        (rule.rule_id, json.dumps({field: event[field] for field in rule.group_by}))
        for rule in (() if over is None else over.rules)
        for event in events
        if event.keys() >= set(rule.group_by)
    }


def _without(rows: list[Row], rules: set[str], groups: set[str], events: set[str]) -> list[Row]:
    """The rows that are neither of some rules, nor of some groups, by name or identity, nor of some events."""
    kept = (row for row in rows if row.get("rule_id") not in rules and row.get("event_id") not in events)
    return [row for row in kept if row.get("group_id", row.get("group")) not in groups]


def _asked(table: Path, query: str) -> list[Row]:
    rows: list[Row] = pa.table(QueryBuilder().register("rows", DeltaTable(table)).execute(query).read_all()).to_pylist()
    return rows


def compare(batch: int, output: str, found: list[Row], expected: list[Row]) -> None:
    """See that two lists have the same rows."""
    mine, theirs = sorted(map(repr, found)), sorted(map(repr, expected))
    if mine == theirs:
        return
    missing, more = list(theirs), []
    for row in mine:
        if row in missing:
            missing.remove(row)
        else:
            more.append(row)
    lines = [f"batch {batch}, {output}: {len(missing)} rows are missing and {len(more)} should not be there"]
    lines += [f"  missing: {row}" for row in missing[:SHOWN]] + [f"  not expected: {row}" for row in more[:SHOWN]]
    raise Difference("\n".join(lines))
