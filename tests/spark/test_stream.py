"""Rules over a streaming DataFrame give what they give over a batch, however it is cut, stopped or killed."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import buckets
import buckets.spark as bs
from buckets.evaluation import Evaluator
from buckets.spark import frame_rows, query
from buckets.spark.state_carry import export_state
from buckets.state_transfer.export_manifest import KEYS
from tests.laws import examples
from tests.spark.job_folder import FIRST_MTIME_S
from tests.spark.test_frames import COLUMNS, OVER_ALERTS, RULES, SCHEMA, in_any_order, rows, table_of

pytestmark = pytest.mark.spark
SHOP = pa.struct({"name": pa.string(), "city": pa.string()})
TEXTS = dict.fromkeys(("kind", "amount"), pa.string())
KINDS = pa.schema({"n": pa.int32(), "id": pa.string(), "at": pa.int64(), "payer": pa.string(), "shop": SHOP} | TEXTS)
CHILD = Path(__file__).with_name("stream_child.py")


def add(folder: Path, number: int, table: pa.Table) -> None:
    """Put a file into the folder of a stream, whole at once."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f"_{number}"
    pq.write_table(table.cast(KINDS), hidden)
    os.utime(hidden, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))
    hidden.rename(folder / f"{number:03d}.parquet")


def add_all(folder: Path, found: list[dict[str, Any]], files: int, seed: int = 0) -> None:
    """The rows in files: each has what came at one time, in no order."""
    size = -(-len(found) // files)
    for number in range(files):
        part = random.Random(seed).sample(some := found[number * size : (number + 1) * size], len(some))
        add(folder, number, table_of(part))


def stream_of(spark, folder, columns=COLUMNS, files=1):
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", files).parquet(str(folder))


def run(live, take, **options) -> bs.StreamQuery:
    """A query over what is there, to its end."""
    started = live.for_each_batch(take).start(available_now=True, **options)
    started.awaitTermination()
    return started


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["n"])


@pytest.mark.parametrize("seed", range(examples(2)))
def test_features_and_outputs_are_those_of_one_process_in_any_cut(spark, tmp_path, monkeypatch, seed):
    found, kept = rows(seed), dict[str, list[pa.Table]]()
    monkeypatch.setattr("buckets.spark.live_batch._HERE_BYTES", [0, 1 << 20][seed % 2])
    scored, score_batch = [], query.score_batch
    monkeypatch.setattr(query, "score_batch", lambda *given: scored.append(given[1]) or score_batch(*given))
    add_all(tmp_path / "in", found, files=3, seed=seed)
    names = ("features", "evaluations", "alerts", "held_alerts", "late_events", "duplicates", "dead_letters")

    def take(batch: bs.StreamBatch) -> None:
        assert batch.account.events_in == batch.features.count()
        for name in names:
            kept.setdefault(name, []).append(getattr(batch, name).toArrow())
        assert batch.alerts.count() == len(kept["alerts"][-1])

    frame = stream_of(spark, tmp_path / "in")
    run(
        bs.stream(frame, RULES, SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"], flags=True, evaluations=True),
        take,
    )
    assert scored == [0, 1, 2], "reading outputs scores nothing again"
    expected = buckets.features(table_of(found), RULES, SCHEMA, flags=True)
    result = pa.concat_tables(kept.pop("features"))
    batch = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    of_batch = bs.features(batch, RULES, SCHEMA, order_by=["n"], flags=True)
    assert result.column_names == of_batch.columns
    ordered = in_order(result.to_pylist())
    assert ordered == of_batch.orderBy("n").toArrow().to_pylist()
    shared = [name for name in expected.column_names if name in result.column_names and name != "payer"]
    assert [{name: row[name] for name in shared} for row in ordered] == expected.select(shared).to_pylist()
    recorded = Evaluator(RULES, SCHEMA).recorded(table_of(found), lambda line: None).tables
    for name, tables in kept.items():
        whole = pa.concat_tables(tables)
        assert len(whole), name
        assert in_any_order(whole) == in_any_order(recorded[name].select(whole.column_names)), name


def test_columns_of_any_type_are_read_as_they_are_and_come_back(spark, tmp_path):
    schema = bs.schema(
        {
            "event_id": "id",
            "event_time": {"field": "at"},
            "attributes": {"who.payer": "string"},
            "measures": {"amount": {"scale": 2}},
            "arrays": {"items[].sku": "string"},
        }
    )
    count = {"function": "count", "window": "1h", "where": "'s1' IN items[].sku"}
    rule = {"rule_id": "r", "group_by": ["who.payer"], "features": {"skus": count}, "when": "skus > 1"}
    total = {"function": "sum", "of": "amount", "window": "1h"}
    rules = bs.rules([rule, rule | {"rule_id": "s", "features": {"sum": total}, "when": "sum > 5"}])
    columns = (
        "n int, id string, at timestamp, who struct<payer: string, age: int>, amount decimal(12,3), "
        "items array<struct<sku: string, count: int>>, more map<string, binary>, `a.b` date"
    )
    made = spark.range(60).selectExpr(
        "cast(id AS int) AS n",
        "concat('e', id) AS id",
        "timestamp_seconds(1700000000 + id * 60) AS at",
        "if(id % 9 = 8, NULL, named_struct('payer', if(id % 3 = 0, 'x', 'y'), 'age', 3)) AS who",
        "if(id % 7 = 6, NULL, cast(id / 4 AS decimal(12,3))) AS amount",
        "array(named_struct('sku', concat('s', id % 4), 'count', 1), NULL) AS items",
        "map('k', cast('v' AS binary)) AS more",
        "date'2026-01-01' AS `a.b`",
    )
    made.repartition(3).write.parquet(str(tmp_path / "in"))
    kept: list[dict[str, Any]] = []
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        frame = stream_of(spark, tmp_path / "in", columns, files=9)
        live = bs.stream(frame, rules, schema, checkpoint=tmp_path / "cp", order_by=["at", "id"])

        def take(batch: bs.StreamBatch) -> None:
            features = batch.features
            assert features.schema.fields[: len(frame.columns)] == frame.schema.fields
            kept.extend(features.toArrow().to_pylist())

        run(live, take)
        expected = bs.features(spark.read.schema(columns).parquet(str(tmp_path / "in")), rules, schema, order_by=["n"])
        assert in_order(kept) == expected.orderBy("n").toArrow().to_pylist()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert {row["r.skus"] for row in kept} >= {None, 0, 1, 2, 4}
    assert Decimal("8.75") in {row["amount"] for row in kept}


@pytest.mark.parametrize("order_by", [["at"], ["kind", "at", "n"], ["day", "id"]])
def test_an_order_of_any_columns_is_that_of_a_batch(spark, tmp_path, order_by):
    found = [row | {"at": 1_700_000_000_000 + row["n"] // 40, "id": f"{row['id']}\0{row['n']}"} for row in rows(4, 200)]
    add_all(tmp_path / "in", found, files=3)
    kept: list[dict[str, Any]] = []
    at = {"at": F.timestamp_millis("at"), "day": F.timestamp_millis("at").cast("date")}
    frame = stream_of(spark, tmp_path / "in", files=9).withColumns(at)
    schema = bs.schema(SCHEMA.model_dump(mode="json", exclude_unset=True) | {"event_time": {"field": "at"}})
    live = bs.stream(frame, RULES, schema, checkpoint=tmp_path / "cp", order_by=order_by)
    run(live, lambda batch: kept.extend(batch.features.toArrow().to_pylist()))
    batch = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in")).withColumns(at)
    expected = bs.features(batch, RULES, schema, order_by=order_by).toArrow()
    assert in_order(kept) == in_order(expected.to_pylist())


def test_places_sort_as_the_columns_of_the_order_do(monkeypatch):
    random_ = random.Random(1)
    numbers = [-(1 << 63), -(1 << 20), -1, 0, 1, (1 << 20) - 1, 1 << 20, (1 << 63) - 1]
    texts = ["", "\0", "\0\1", "a", "a\0", "a\0b", "ab", "ä", "\U0001f600"]
    monkeypatch.setattr(frame_rows.TaskContext, "get", lambda: type("Task", (), {"partitionId": lambda self: 3})())
    for kinds in (["n"], ["n", "n"], ["t"], ["t", "n"], ["n", "t"], ["n", "t", "n"], ["t", "t"], ["n", "n", "t"]):
        keys = [tuple(random_.choice(numbers if kind == "n" else texts) for kind in kinds) for _ in range(200)]
        columns = [pa.array([key[at] for key in keys]) for at in range(len(kinds))]
        places = frame_rows.by_place(columns, 7)
        source = [""] * len(keys) if places.source is None else places.source.to_pylist()
        given = list(zip(places.order.to_pylist(), source, places.position.to_pylist(), strict=True))
        assert len(set(places.position.to_pylist())) == len(keys)
        by_place = [keys[row] for row in sorted(range(len(keys)), key=given.__getitem__)]
        assert by_place == sorted(keys), kinds


def test_rules_change_while_it_runs_and_what_is_wrong_is_said_at_once(spark, tmp_path, as_worded):
    add(tmp_path / "in", 0, table_of(rows(1, 30)))
    batches: list[tuple[int, int, list[str]]] = []
    frame = stream_of(spark, tmp_path / "in")
    live = bs.stream(frame, RULES[:1], SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"])
    started = live.for_each_batch(
        lambda batch: batches.append((batch.id, batch.rules_version, batch.features.columns[7:]))
    ).start(interval="50 milliseconds")
    wait_for(lambda: len(batches) == 1, started)
    for wrong in ([{"rule_id": "r", "group_by": ["nothing"], "features": {}, "when": "TRUE"}], [], {"rules": []}):
        with pytest.raises(bs.FrameError) as caught:
            started.rules.update(wrong)
        assert caught.value.getCondition() == "INVALID_RULES"
    for said in ({"author": 5}, {"reason": 5}, {"reason": "x" * 2001}):
        with pytest.raises(bs.FrameError, check=as_worded):
            started.rules.update(RULES[:1], **said)
    assert (started.rules.version, [rule.rule_id for rule in started.rules.in_force]) == (1, ["short"])
    started.rules.update(RULES, author="ann", reason="a trial")
    add(tmp_path / "in", 1, table_of(rows(2, 30)))
    wait_for(lambda: len(batches) == 2, started)
    assert started.isActive
    assert not started.awaitTermination(0.01)
    with pytest.raises(bs.FrameError) as caught:
        live.for_each_batch(print).start()
    assert caught.value.getCondition() == "CHECKPOINT_IN_USE"
    wait_for(lambda: started.lastProgress["batchId"] >= 1, started)
    started.stop()
    assert not started.isActive
    assert started.exception() is None
    assert started.awaitTermination()
    assert [(number, version) for number, version, _ in batches] == [(0, 1), (1, 2)]
    assert batches[0][2] == ["outcome", "short.value", "short.fired"]
    assert set(batches[1][2]) > {"short.value", "many.shops", "many.fired"}


def test_a_path_of_rules_is_followed(spark, tmp_path):
    path, rule = tmp_path / "rules.json", json.loads(RULES[0].model_dump_json(exclude_unset=True))
    path.write_text(json.dumps({"rules": [rule]}))
    add(tmp_path / "in", 0, table_of(rows(1, 30)))
    versions: list[int] = []
    live = bs.stream(stream_of(spark, tmp_path / "in"), path, SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"])
    started = live.for_each_batch(lambda batch: versions.append(batch.rules_version)).start(interval="50ms")
    wait_for(lambda: versions == [1], started)
    with pytest.raises(bs.FrameError) as caught:
        started.rules.update(RULES)
    assert caught.value.getCondition() == "RULES_FOLLOWED"
    path.write_text(json.dumps({"rules": [rule | {"description": "another"}]}))
    for number in range(1, 100):  # a file that has changed is read once it has settled
        add(tmp_path / "in", number, table_of(rows(number, 5)))
        wait_for(lambda number=number: len(versions) > number, started)
        if versions[-1] == 2:
            break
    started.stop()


def wait_for(is_there, started: bs.StreamQuery) -> None:
    until_s = time.monotonic() + 120
    while not is_there():
        started.awaitTermination(0.1)
        assert time.monotonic() < until_s


def test_a_table_is_written_once_however_its_path_is_written(spark, tmp_path):
    add(tmp_path / "in", 0, table_of(rows(5, 40)))
    table = tmp_path / "table"
    (tmp_path / "link").symlink_to(table)
    given = [f"{table}/", tmp_path / "in" / ".." / "table", f"file:{table}", os.path.relpath(table), tmp_path / "link"]
    tried = 0

    def take(batch: bs.StreamBatch) -> None:
        nonlocal tried
        features = batch.features
        batch.write_delta(features, given[tried])
        for path in given:
            with pytest.raises(bs.FrameError, check=lambda error: error.getCondition() == "WRITTEN_TWICE"):
                batch.write_delta(batch.alerts, path)
        tried += 1
        if tried < len(given):
            message = "again"
            raise KeyError(message)

    frame = stream_of(spark, tmp_path / "in")
    for _ in given:
        live = bs.stream(frame, RULES, SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"]).for_each_batch(take)
        with contextlib.suppress(bs.FrameError):
            live.start(available_now=True).awaitTermination()
    assert tried == len(given)
    assert spark.read.format("delta").load(str(table)).count() == len(rows(5, 40))


def test_where_a_table_cannot_be_written_is_said_in_one_line(spark, tmp_path, as_worded):
    add(tmp_path / "in", 0, table_of(rows(5, 20)))
    (tmp_path / "file").write_text("")
    said = []

    def refused(batch: bs.StreamBatch, path: Any) -> str:
        with pytest.raises(bs.FrameError) as caught:
            batch.write_delta(batch.features, path)
        said.append(str(caught.value).replace(str(tmp_path), "FOLDER"))
        return caught.value.getCondition()

    def take(batch: bs.StreamBatch) -> None:
        for path in (None, 5, "", "nowhere://a/b", tmp_path / "file", "/proc/nope/x"):
            assert refused(batch, path) == "NOT_A_TABLE"
        batch.write_delta(batch.features.drop("short.value"), tmp_path / "table")
        assert refused(batch, str(tmp_path / "table") + "/") == "WRITTEN_TWICE"

    def grown(batch: bs.StreamBatch) -> None:
        assert refused(batch, tmp_path / "table") == "COLUMN_MISSING"
        batch.write_delta(batch.features, tmp_path / "table", mergeSchema=True)

    frame = stream_of(spark, tmp_path / "in")
    live = bs.stream(frame, RULES, SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"])
    for number, work in enumerate((take, grown)):
        add(tmp_path / "in", number + 1, table_of(rows(6 + number, 20)))
        live.for_each_batch(work).start(available_now=True).awaitTermination()
    found = spark.read.format("delta").load(str(tmp_path / "table")).toArrow()
    assert 0 < found["short.value"].null_count < len(found)
    assert as_worded("\n".join(dict.fromkeys(said)))


def test_what_a_function_raises_is_the_cause_and_the_batch_is_tried_again(spark, tmp_path):
    add_all(tmp_path / "in", rows(5, 90), files=3)
    seen: list[tuple[int, list[dict[str, Any]]]] = []
    table = tmp_path / "features"

    def take(batch: bs.StreamBatch) -> None:
        features = batch.features
        seen.append((batch.id, in_order(features.toArrow().to_pylist())))
        batch.write_delta(features, table)
        batch.write_delta(features, table)
        batch.write_delta(features, tmp_path / "by_spark", mergeSchema=False)
        batch.write_delta(batch.shadow_alerts, tmp_path / "none")
        assert batch.features is features
        with pytest.raises(bs.FrameError, check=lambda error: error.getCondition() == "WRITTEN_TWICE"):
            batch.write_delta(batch.alerts, table)
        with pytest.raises(bs.FrameError, check=lambda error: error.getCondition() == "NOT_A_TABLE"):
            batch.write_delta(features, tmp_path / "in")
        if [number for number, _ in seen] == [0, 1]:
            message = "my own"
            raise KeyError(message)

    spark.createDataFrame([(1,)], "n int").write.format("delta").save(str(tmp_path / "other"))  # Delta sets some too
    before = dict(spark.conf.getAll)
    rules = (*RULES, *OVER_ALERTS)
    live = bs.stream(stream_of(spark, tmp_path / "in"), rules, SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"])
    started = live.for_each_batch(take).start(available_now=True)
    with pytest.raises(bs.FrameError, match="my own") as caught:
        started.awaitTermination()
    assert caught.value.getCondition() == "BATCH_FAILED"
    assert isinstance(caught.value.__cause__, KeyError)
    assert started.exception() is caught.value
    ended = run(live, take)
    assert [number for number, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2]
    assert dict(spark.conf.getAll) == before
    written = in_order(DeltaTable(table).to_pyarrow_table().to_pylist())
    assert [row["id"] for row in written] == [row["id"] for _, several in (seen[0], *seen[2:]) for row in several]
    assert written == in_order(DeltaTable(tmp_path / "by_spark").to_pyarrow_table().to_pylist())
    for written_here in (table, tmp_path / "none"):
        engines = [commit["engineInfo"][:8] for commit in DeltaTable(written_here).history()]
        assert engines == ["delta-rs", "delta-rs", "Apache-S"], "after the first batch this process writes"
    with pytest.raises(bs.FrameError, check=lambda error: error.getCondition() == "QUERY_ENDED"):
        ended.rules.update(rules)
    add(tmp_path / "elsewhere", 0, table_of(rows(1, 5)))
    before = sorted(path for path in (tmp_path / "cp").rglob("*"))
    for folder, order_by in (("in", ["n", "id"]), ("elsewhere", ["n"])):
        other = bs.stream(
            stream_of(spark, tmp_path / folder), rules, SCHEMA, checkpoint=tmp_path / "cp", order_by=order_by
        )
        with pytest.raises(bs.FrameError, check=lambda error: error.getCondition() == "CHECKPOINT_MISMATCH"):
            other.for_each_batch(take).start()
    assert sorted((tmp_path / "cp").rglob("*")) == before
    manifest = export_state(spark, tmp_path / "cp", tmp_path / "export", lambda line: None)
    assert (manifest.batch_id, manifest.tables[KEYS].rows > 0) == (2, True)


def test_what_cannot_run_is_refused_at_once(spark, tmp_path):
    folder = tmp_path / "in"
    add(folder, 0, table_of(rows(1, 5)))
    frame, batch = stream_of(spark, folder), spark.read.schema(COLUMNS).parquet(str(folder))

    def condition(work) -> str:
        with pytest.raises(bs.FrameError) as caught:
            work()
        return caught.value.getCondition()

    def live(frame=frame, rules=RULES, order_by=("n",), checkpoint="cp", lists=None) -> bs.LiveFrame:
        return bs.stream(frame, rules, SCHEMA, checkpoint=tmp_path / checkpoint, order_by=order_by, lists=lists)

    def refused(*given, **options) -> str:
        return condition(lambda: live(*given, **options))

    assert refused(batch) == "NOT_A_STREAM"
    assert refused(table_of(rows(1, 5))) == "NOT_A_FRAME"
    assert refused(order_by=[]) == refused(order_by="n") == "ORDER_MISSING"
    assert refused(order_by=["shop"]) == "ORDER_TYPE"
    assert refused(order_by=[F.col("n").desc()]) == "ORDER_TYPE"
    for path in ("", None, 3):
        unnamed = partial(bs.stream, frame, RULES, SCHEMA, checkpoint=path, order_by=["n"])
        assert condition(unnamed) == "INVALID_CHECKPOINT"
    assert condition(live(frame.limit(3)).for_each_batch(print).start) == "STREAM_FAILED"
    assert refused(frame.withColumn("other", F.rand(1))) == "NOT_DETERMINISTIC"
    assert refused(order_by=["m"]) == refused(frame.drop("amount")) == "COLUMN_MISSING"
    assert refused(frame.withColumn("Short.Value", F.lit(1))) == "COLUMN_TAKEN"
    assert refused(rules=[{"rule_id": "r"}]) == refused(rules=tmp_path / "none.yaml") == "INVALID_RULES"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    assert condition(live().start) == condition(lambda: live().for_each_batch(3)) == "NO_FUNCTION"
    for interval in ("soon", "", 5):
        start = live().for_each_batch(print).start
        assert condition(lambda start=start, interval=interval: start(interval=interval)) == "INVALID_INTERVAL"
    assert condition(lambda: start(interval="5s", available_now=True)) == "INVALID_INTERVAL"
    assert condition(lambda: start(available_now="yes")) == "INVALID_OPTION"
    (tmp_path / "list.csv").write_text("payer\nx\n")
    for path in (tmp_path / "none.csv", tmp_path / "list.csv"):
        assert refused(lists={"blocked": path}) == "INVALID_LISTS"
    assert condition(live(checkpoint="other").for_each_batch(print).start) == "CHECKPOINT_MISMATCH"
    assert condition(live(checkpoint="other/file/cp").for_each_batch(print).start) == "CHECKPOINT_UNWRITABLE"


@pytest.mark.parametrize(
    "given",
    [
        {"features": "x"},
        {"evaluations": 5},
        {"flags": None},
        {"checkpoint": "http://x/y"},
        {"checkpoint": "file:/tmp/x"},
        {"checkpoint": "/etc/passwd"},
    ],
    ids=str,
)
def test_an_argument_of_another_kind_is_refused_in_one_line(spark, tmp_path, given, as_worded):
    add(tmp_path / "in", 0, table_of(rows(1, 5)))
    options = {"checkpoint": tmp_path / "cp", "order_by": ["n"], **given}
    with pytest.raises(bs.FrameError, check=as_worded) as caught:
        bs.stream(stream_of(spark, tmp_path / "in"), RULES, SCHEMA, **options)
    assert caught.value.getCondition() == ("INVALID_CHECKPOINT" if "checkpoint" in given else "INVALID_OPTION")


def child(work: Path, events: Path) -> subprocess.Popen[bytes]:
    """A process with a session of its own, which streams what is there; its PATH leads to a Python without packages."""
    (others := events.with_name("others")).mkdir(exist_ok=True)
    if not (others / "python3").exists():
        (others / "python3").symlink_to(sys._base_executable)
    environment = os.environ | {"PYTHONPATH": str(CHILD.parents[2]), "PATH": f"{others}:{os.environ['PATH']}"}
    environment.pop("PYSPARK_PYTHON", None)
    command = [sys.executable, str(CHILD), str(work), str(events)]
    return subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)


def results(work: Path) -> list[dict[str, Any]]:
    parts = sorted((work / "out").glob("*.json"))
    return in_order([row for part in parts for row in json.loads(part.read_text())])


def test_a_stream_that_has_state_of_its_own_keeps_it_apart_from_that_of_shards(spark, tmp_path):
    """Spark knows stores of both by one query: keys of one would be read as those of the other."""
    add_all(tmp_path / "in", rows(0), files=3)
    times = stream_of(spark, tmp_path / "in").withColumn("ts", F.timestamp_millis("at")).withWatermark("ts", "1 hour")
    frame, bare, kept = times.dropDuplicates(["n", "ts"]).drop("ts"), list[pa.Table](), list[pa.Table]()
    writer = frame.writeStream.foreachBatch(lambda batch, _: bare.append(batch.toArrow()))
    writer.option("checkpointLocation", str(tmp_path / "bare")).trigger(availableNow=True).start().awaitTermination()
    live = bs.stream(frame, RULES, SCHEMA, checkpoint=tmp_path / "cp", order_by=["n"])
    run(live, lambda batch: kept.append(batch.features.toArrow()))
    passed = pa.concat_tables(bare)
    found = in_order(pa.concat_tables(kept).select(passed.column_names).to_pylist())
    assert found == in_order(passed.to_pylist()) != []


@pytest.mark.slow
def test_killed_at_any_time_it_ends_with_what_it_gives_undisturbed(tmp_path):
    found = rows(7, 300)
    add_all(tmp_path / "in", found, files=6)
    assert child(tmp_path / "calm", tmp_path / "in").wait() == 0
    expected = results(tmp_path / "calm")
    assert len(expected) == len(found)
    random_, killed = random.Random(2), 0
    while True:
        done = len(list((tmp_path / "killed" / "out").glob("*.json")))
        process = child(tmp_path / "killed", tmp_path / "in")
        wanted, until_s = done + random_.randint(1, 2), time.monotonic() + 180
        while process.poll() is None and len(list((tmp_path / "killed" / "out").glob("*.json"))) < wanted:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        if process.poll() is not None:
            assert process.returncode == 0
            break
        time.sleep(random_.choice([0, 0.05, 0.2, 0.5]))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
    assert killed >= 2
    assert results(tmp_path / "killed") == expected


def test_rules_look_into_lists_by_several_columns(spark, tmp_path):
    found, path = rows(1), tmp_path / "pairs.csv"
    pairs = sorted({(row["payer"], row["kind"]) for row in found})
    path.write_text("key1,key2\n" + "".join(f"{payer},{kind}\n" for payer, kind in pairs[::2]))
    written = {"rule_id": "paired", "group_by": ["payer"], "features": {"n": {"function": "count", "window": "1h"}}}
    whens = ("n >= 1 AND (payer, kind) IN LIST pairs", "n >= 1 AND payer IN LIST pairs")
    rule, other = (buckets.Rule.model_validate(written | {"when": when}) for when in whens)
    add_all(tmp_path / "in", found, files=2)
    alerts: list[str] = []
    frame, options = stream_of(spark, tmp_path / "in"), {"checkpoint": tmp_path / "cp", "order_by": ["n"]}
    live = bs.stream(frame, [rule], SCHEMA, lists={"pairs": path}, **options)
    run(live, lambda batch: alerts.extend(batch.alerts.toArrow()["event_id"].to_pylist()))
    expected = buckets.evaluate(table_of(found), [rule], SCHEMA, lists={"pairs": buckets.load_list(path)}).alerts
    assert sorted(alerts) == sorted(expected["event_id"].to_pylist()) != []
    with pytest.raises(bs.FrameError) as caught:
        bs.stream(frame, [other], SCHEMA, lists={"pairs": path}, **options)
    assert caught.value.getCondition() == "INVALID_RULES"
