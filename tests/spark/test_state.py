"""`buckets state`: what it says of a checkpoint is what was put in, while the job runs and after it has ended."""

import json
from datetime import UTC, datetime

import pytest

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.engine.storage.key import key_of_values
from buckets.engine.storage.shard_store import split_head_key
from buckets.errors import BucketsError
from buckets.events.schema import load_event_schema
from buckets.resources import DEFAULT_SCHEMA
from buckets.rules.group import Group
from buckets.spark.state_reader import read_stats, read_timeline
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder, Row
from tests.spark.payments import RULES
from tests.spark.test_kill import committed_batches

pytestmark = pytest.mark.spark

HOUR = {"window": {"length": "1h"}}
HOUR_RULES = [RULES[0] | HOUR, RULES[1] | {"window": {"length": "1h", "left": "open"}}, RULES[2] | HOUR]
START_MS = -60_000
STEP_MS, MANY = 1_000, 400
TAIL_MS, RESOLUTION_MS = 250_000, 10_000
ENGINE = {
    "shards": 2,
    "allowed_lateness": "100ms",
    "precision": {"groups": [{"group_by": ["payer"], "tail": "250s", "resolution": "10s"}]},
}


def stream() -> list[Row]:
    """Many events of ann, a second apart, and one each of bob and zoë."""
    events = [("ann", number * STEP_MS, f"{number % 7 - 2}.25", "CASH") for number in range(MANY)]
    events += [("bob", MANY * STEP_MS, "5.00", "CARD"), ("zoë", MANY * STEP_MS + 1, "-6.50", "CARD")]
    return [
        {"id": f"é{number}", "t": START_MS + ago_ms, "payer": payer, "kind": kind, "amount": amount}
        for number, (payer, ago_ms, amount, kind) in enumerate(events)
    ]


EVENTS = stream()
CLOCK_MS = {"ann": EVENTS[MANY - 1]["t"], "bob": EVENTS[MANY]["t"], "zoë": EVENTS[MANY + 1]["t"]}


def whole_buckets(events: list[Row]) -> list[list[Row]]:
    """The events of each bucket after the tail, oldest first."""
    border_ms = (events[-1]["t"] - TAIL_MS) // RESOLUTION_MS * RESOLUTION_MS
    found: dict[int, list[Row]] = {}
    for event in events:
        if event["t"] < border_ms:
            found.setdefault(event["t"] // RESOLUTION_MS, []).append(event)
    return list(found.values())


@pytest.fixture(scope="module")
def job(spark, tmp_path_factory) -> JobFolder:
    """A job that has ended; nobody may change it."""
    job = JobFolder(tmp_path_factory.mktemp("state"), engine=ENGINE)
    job.write_rules(HOUR_RULES)
    job.add_events(EVENTS, files=1)
    job.run(spark)
    return job


@pytest.fixture(scope="module")
def stats(spark, job) -> tuple[list, list]:
    return read_stats(spark, job.checkpoint, 100)


def groups_of(job: JobFolder) -> dict[str, Group]:
    """The groups of the job by their names."""
    return {group.name: group for group in RuleVersions(job.checkpoint).groups().values()}


def timeline(spark, job: JobFolder, name: str, *values: str):
    group = groups_of(job)[name]
    key = key_of_values(group, list(values), load_event_schema(DEFAULT_SCHEMA))
    return read_timeline(spark, job.checkpoint, group.group_id, key, [False] * len(group.measures))


# stats


def test_stats_count_what_was_put_in(job, stats):
    names = {group.group_id: name for name, group in groups_of(job).items()}
    groups, _ = stats
    found = {names[each.group_id]: each for each in groups}
    buckets = whole_buckets(EVENTS[:MANY])
    folded = sum(map(len, buckets))
    assert 0 < len(buckets) < folded < MANY
    assert {name: (each.keys, each.cells) for name, each in found.items()} == {
        "payer": (3, len(buckets) + MANY - folded + 2),
        "all events": (1, len(EVENTS)),
        "payer where kind is CARD": (2, 2),
    }
    assert found["all events"].pages > 0
    assert found["payer where kind is CARD"].pages == 0
    sizes = [each.state_bytes for each in groups]
    assert sizes == sorted(sizes, reverse=True)


def test_the_sizes_of_keys_add_up_to_those_of_their_group_the_largest_first(stats):
    groups, largest = stats
    sizes = [key.state_bytes for key in largest]
    assert sizes == sorted(sizes, reverse=True)
    for group in groups:
        mine = [key for key in largest if split_head_key(bytes(key.state_key))[0] == group.group_id]
        assert len(mine) == group.keys
        for name in ("cells", "pages", "state_bytes"):
            assert sum(getattr(key, name) for key in mine) == getattr(group, name)


def test_only_so_many_of_the_largest_keys_are_read(spark, job, stats):
    groups, largest = stats
    assert read_stats(spark, job.checkpoint, 2) == (groups, largest[:2])
    assert read_stats(spark, job.checkpoint, 0) == (groups, [])


def test_stats_and_show_agree_on_every_key(spark, job, stats):
    for key in stats[1]:
        group_id, encoded = split_head_key(bytes(key.state_key))
        view, state_bytes = read_timeline(spark, job.checkpoint, group_id, encoded, [False])
        assert (key.clock_ms, key.cells, key.pages) == (view.clock_ms, len(view.cells), len(view.pages))
        assert key.state_bytes == state_bytes


# show


def test_a_timeline_shows_its_buckets_and_its_raw_events_oldest_first(spark, job):
    view, _ = timeline(spark, job, "payer", "ann")
    ann = EVENTS[:MANY]
    buckets = whole_buckets(ann)
    raw = ann[sum(map(len, buckets)) :]
    assert view.clock_ms == CLOCK_MS["ann"]
    assert len(view.pages) > 0
    assert {cell.page for cell in view.cells} == {*view.pages, None}
    expected = [(each[0]["t"], each[-1]["t"], len(each), None) for each in buckets]
    expected += [(event["t"], event["t"], 1, event["id"]) for event in raw]
    assert [(cell.first_ms, cell.last_ms, cell.events, cell.event_id) for cell in view.cells] == expected
    for cell, members in zip(view.cells, [*buckets, *([event] for event in raw)], strict=True):
        amounts = [round(float(event["amount"]) * 100) for event in members]
        assert cell.plus[0] - cell.minus[0] == sum(amounts)
        assert (cell.least[0], cell.greatest[0]) == (min(amounts), max(amounts))


def test_the_timeline_of_all_events_is_raw(spark, job):
    view, _ = timeline(spark, job, "all events")
    assert [cell.event_id for cell in view.cells] == [event["id"] for event in EVENTS]
    assert view.clock_ms == CLOCK_MS["zoë"]


def test_a_key_that_is_not_there_has_no_timeline(spark, job):
    assert timeline(spark, job, "payer", "eve") is None
    assert timeline(spark, job, "payer where kind is CARD", "ann") is None


def test_the_command_shows_a_timeline(buckets, job):
    code, out, err = buckets("state", "show", job.checkpoint, "--group", "payer", "--key", "ann", "--limit", "3")
    assert (code, err) == (0, "")
    shown = datetime.fromtimestamp(CLOCK_MS["ann"] / 1000, UTC)
    first, title, *_ = out.splitlines()
    assert first.startswith(f'payer: {{"payer": "ann"}}: clock {shown:%Y-%m-%d %H:%M:%S}.000 UTC, {MANY} events in ')
    assert title.startswith("the newest 3 of ")
    assert [event["id"] in out for event in EVENTS[MANY - 4 : MANY + 1]] == [False, True, True, True, False]
    assert "head" in out


def test_the_command_shows_buckets_with_their_sums(buckets, job):
    code, out, _ = buckets("state", "show", job.checkpoint, "--group", "payer", "--key", "ann", "--limit", "9999")
    assert code == 0
    members = whole_buckets(EVENTS[:MANY])[1]
    amounts = [round(float(event["amount"]) * 100) for event in members]
    (line,) = [
        line for line in out.splitlines() if f"{datetime.fromtimestamp(members[0]['t'] / 1000, UTC):%H:%M:%S}." in line
    ]
    assert f"bucket, events over {(len(members) - 1) * STEP_MS // 1000}s" in line
    for amount in (sum(amounts), min(amounts), max(amounts)):
        assert f" {amount / 100:.2f} " in line


def test_a_key_that_is_not_there_is_one_line(buckets, job):
    code, out, err = buckets("state", "show", job.checkpoint, "--group", "payer", "--key", "eve")
    assert (code, out.strip()) == (1, "")
    assert err == f"error: checkpoint {job.checkpoint} holds no timeline of group 'payer' and key 'eve'\n"


def test_a_checkpoint_in_which_no_batch_has_ended_is_one_line(buckets, spark, tmp_path):
    job = JobFolder(tmp_path)
    job.query(spark, lambda report: None)
    with pytest.raises(BucketsError, match="holds no state yet: no batch has ended"):
        read_stats(spark, job.checkpoint, 1)
    code, _, err = buckets("state", "stats", job.checkpoint)
    assert (code, err) == (1, f"error: checkpoint {job.checkpoint} holds no state yet: no batch has ended\n")


# The command itself, and a job that runs


def test_the_command_shows_the_sizes_of_all_groups_and_the_largest_keys(buckets, job, stats):
    code, out, err = buckets("state", "stats", job.checkpoint, "--largest", "2")
    assert (code, err) == (0, "")
    groups, _, keys = out.partition("Largest keys")
    assert all(name in groups for name in groups_of(job))
    for group in stats[0]:
        assert f" {group.state_bytes:,} " in groups
    assert "1970-01-01 00:05:39.000" in keys
    assert [f'{{"payer": "{payer}"}}' in keys for payer in ("ann", "bob", "zoë")] == [True, False, False]


def test_the_state_of_a_job_that_runs_is_that_of_its_last_batch(spark, tmp_path, job):
    running = JobFolder(tmp_path, engine=ENGINE, trigger={"interval": "100ms"})
    running.write_rules(HOUR_RULES)
    running.add_events(EVENTS, files=1)
    with RunningCommand("run", running.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: committed_batches(running) == {0})
        assert read_stats(spark, running.checkpoint, 100) == read_stats(spark, job.checkpoint, 100)
        later = EVENTS[-1] | {"id": "later", "t": EVENTS[-1]["t"] + 5}
        running.add_file(1, [json.dumps(later)])
        command.wait_until(lambda: committed_batches(running) == {0, 1})
        view, _ = timeline(spark, running, "payer", "zoë")
        assert [(cell.event_id, cell.first_ms) for cell in view.cells] == [
            (EVENTS[-1]["id"], EVENTS[-1]["t"]),
            ("later", later["t"]),
        ]
        assert command.interrupt() == 0
