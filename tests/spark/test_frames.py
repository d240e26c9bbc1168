"""Rules over a batch DataFrame give what they give over a table in one process, however the rows lie."""

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkAttributeError
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import buckets
import buckets.spark as bs
from buckets.evaluation import Evaluator
from buckets.spark import frame_backtest, frames
from tests.docs.blocks import PAGES, blocks_of
from tests.docs.test_examples import ON_SPARK, run_session
from tests.laws import examples

pytestmark = pytest.mark.spark

SCHEMA = bs.schema(
    {
        "event_id": "id",
        "event_time": {"field": "at", "unit": "ms"},
        "attributes": {"payer": "string", "shop.name": "string", "kind": "string"},
        "measures": {"amount": {"scale": 2}},
        "derive": {"town": "upper(`shop.name`)", "gross": "round(amount * 1.19, 2)"},
    }
)
OF_PAYER = {
    "shops": {"function": "count_distinct", "of": "shop.name", "window": "5m"},
    "largest": {"function": "max", "of": "amount", "window": "1m", "where": "kind = 'a'"},
}
RULES = bs.rules(
    [
        {
            "rule_id": "short",
            "group_by": ["payer"],
            "aggregate": {"function": "sum", "measure": "amount"},
            "window": {"length": "1m"},
            "limit": {"operator": ">", "value": "60"},
            "cooldown": "30s",
            "then": {"put": "watched", "key": "payer", "until": "5m"},
        },
        {
            "rule_id": "many",
            "group_by": ["payer"],
            "features": {
                **OF_PAYER,
                "same": {"function": "count", "window": "2m", "group_by": ["payer", "shop.name"]},
                "of_shop": {"function": "avg", "of": "amount", "window": "1m", "group_by": ["shop.name"]},
                "of_role": {"function": "sum", "of": "amount", "window": "2m", "group_by": ["kind AS payer"]},
            },
            "when": "shops >= 2 AND amount > of_shop",
            "cooldown": "20s",
        },
        {
            "rule_id": "derived",
            "group_by": ["town"],
            "features": {"paid": {"function": "sum", "of": "gross", "window": "2m"}},
            "when": "paid > 100 AND town REGEXP '^[S-U]$'",
        },
    ]
)
OF_PAYERS = bs.rules(
    [
        {
            "rule_id": "of payers",
            "group_by": ["payer"],
            "features": {
                **OF_PAYER,
                "same": {"function": "count", "window": "2m", "group_by": ["payer", "kind"]},
                "of_role": {
                    "function": "sum",
                    "of": "amount",
                    "window": "2m",
                    "group_by": ["shop.name AS kind", "payer"],
                },
            },
            "when": "shops >= 2 AND amount > same",
        },
        {
            "rule_id": "filtered",
            "group_by": ["payer", "town"],
            "where": "kind = 'b'",
            "aggregate": {"function": "sum", "measure": "gross"},
            "window": {"length": "1m"},
            "limit": {"operator": ">", "value": "60"},
        },
    ]
)
"""All keys have the payer."""
OVER_ALERTS = bs.rules(
    [
        {
            "rule_id": "often",
            "on": "alerts",
            "group_by": ["payer"],
            "features": {"alerts": {"function": "count", "window": "10m"}},
            "when": "alerts >= 3",
        },
        {
            "rule_id": "after",
            "group_by": ["payer"],
            "where": "amount > 5",
            "features": {
                "own": {"on": "alerts", "function": "count", "window": "10m"},
                "of_role": {"on": "alerts", "function": "count", "window": "10m", "group_by": ["kind AS payer"]},
            },
            "when": "own + of_role >= 2",
        },
        {
            "rule_id": "watched",
            "group_by": ["payer"],
            "score": "amount",
            "when": "kind IN LIST rules.watched OR payer NOT IN LIST rules.watched AND amount > 90",
        },
    ]
)
COLUMNS = "n int, id string, at long, payer string, shop struct<name: string, city: string>, kind string, amount string"


def rows(seed: int, count: int = 400) -> list[dict[str, Any]]:
    """Events in the order of their arrival: some late, some twice, some without a field, some that are no events."""
    random_ = random.Random(seed)
    found: list[dict[str, Any]] = []
    at = 1_700_000_000_000
    for n in range(count):
        at += random_.choice([0, 1, 500, 5_000, 20_000])
        late = random_.choice([0, 0, 0, 0, 15_000, 90_000_000])
        shop = random_.choice([None, {"name": None, "city": "x"}, *({"name": name, "city": "y"} for name in "stuvw")])
        amount = random_.choice(["1", "12.50", "30.00", None, "much", f"{random_.randint(0, 9999) / 100:.2f}"])
        event = {"id": f"e{n}", "at": at - late, "payer": random_.choice("abcdefgh"), "shop": shop}
        found.append({"n": n, **event, "kind": random_.choice("ab"), "amount": amount})
        if random_.random() < 0.05:
            found.append({**random_.choice(found), "n": n + count})
    return [{**row, "n": n} for n, row in enumerate(found)]


def frame_of(spark, found, seed):
    """The rows as a DataFrame, in no order, over some partitions."""
    shuffled = random.Random(seed).sample(found, len(found))
    return spark.createDataFrame(shuffled, COLUMNS).repartition(1 + seed % 4)


def table_of(found) -> pa.Table:
    return pa.Table.from_pylist(found)


@pytest.mark.parametrize("rules", [RULES, OF_PAYERS], ids=["by slice", "by key"])
@pytest.mark.parametrize("seed", range(examples(3)))
def test_features_are_those_of_one_process(spark, monkeypatch, seed, rules):
    monkeypatch.setattr(frames, "SLICE_ROWS", random.Random(seed).choice([7, 50, 100_000]))
    found = [row | {"payer": row["payer"] if row["n"] % 9 else None} for row in rows(seed)]
    expected = buckets.features(table_of(found), rules, SCHEMA, flags=True).drop_columns(["event_time"])
    frame = frame_of(spark, found, seed)
    result = bs.features(frame, rules, SCHEMA, order_by=["n"], flags=True)

    assert result.schema.fields[: len(frame.columns)] == frame.schema.fields
    scored = result.orderBy("n").toArrow()
    assert scored.select(["n", "id", "at", "payer", "shop", "kind", "amount"]).to_pylist() == found
    names = scored.column_names[len(frame.columns) :]
    fixed = ("event_id", "position", "payer", "shop.name", "town", "kind")
    assert names == [name for name in expected.column_names if name not in fixed]
    assert scored.select(names).to_pylist() == expected.select(names).to_pylist()
    assert set(scored["outcome"].to_pylist()) >= {"evaluated", "late", "too_late", "duplicate", "dead_letter"}


@pytest.mark.parametrize("rules", [RULES, (*RULES, *OVER_ALERTS)], ids=["events", "over alerts"])
def test_a_backtest_is_that_of_one_process(spark, monkeypatch, rules):
    monkeypatch.setattr(frame_backtest, "SLICE_ROWS", 60)
    found, fraud = rows(9), {"e3": Decimal("7.5"), "e40": None, "never": None}
    expected = buckets.backtest(table_of(found), rules, SCHEMA, fraud=fraud, sweeps=["short.limit=20,60,100"])
    frame = frame_of(spark, found, 9)
    given = {"order_by": ["n"], "sweep": {"short.limit": (20, 60, 100)}}
    report = bs.backtest(frame, rules, SCHEMA, fraud=fraud, **given)
    assert (report.total, report.rules, report.variants) == (expected.total, expected.rules, expected.variants)
    assert (report.arrivals, report.days, report.bad.bad) == (expected.arrivals, expected.days, expected.bad.bad)
    assert report.total.alerts > 0
    labels = spark.createDataFrame([(name,) for name in fraud], "id string")
    by_ids = bs.backtest(frame, rules, SCHEMA, fraud=labels, **given).total.fraud
    assert by_ids.confirmed == expected.total.fraud.confirmed
    rows_of = [(name, None if amount is None else str(amount), "fraud") for name, amount in fraud.items()]
    table = spark.createDataFrame([*rows_of, ("e5", "1", "legitimate")], "id string, amount string, verdict string")
    assert bs.backtest(frame, rules, SCHEMA, fraud=table, **given).total.fraud == expected.total.fraud


@pytest.mark.parametrize("rules", [RULES[:1], RULES, (*RULES, *OVER_ALERTS)], ids=["short", "spanning", "over alerts"])
def test_outputs_are_those_of_one_process(spark, monkeypatch, rules):
    monkeypatch.setattr(frames, "SLICE_ROWS", 60)
    found = rows(9)
    expected = Evaluator(rules, SCHEMA).recorded(table_of(found), lambda line: None).tables
    results = bs.evaluate(frame_of(spark, found, 9), rules, SCHEMA, order_by=["n"]).persist()
    try:
        for name in ("evaluations", "alerts", "held_alerts", "late_events", "duplicates", "dead_letters"):
            wanted, scored = expected[name], getattr(results, name).toArrow()
            assert len(wanted), name
            assert scored.column_names == [column for column in wanted.column_names if column != "position"]
            assert in_any_order(scored) == in_any_order(wanted.select(scored.column_names)), name
    finally:
        results.unpersist()


def in_any_order(table: pa.Table) -> list[str]:
    """The rows as text, moments as they are in either unit."""
    moments = [
        name for name, kind in zip(table.column_names, table.schema.types, strict=True) if "timestamp" in str(kind)
    ]
    for name in moments:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.timestamp("us", "UTC")))
    return sorted(map(repr, table.to_pylist()))


def test_rows_that_are_equal_in_the_order_come_in_one_order_of_their_own(spark):
    found = [row | {"at": 1_700_000_000_000 + row["n"] // 40} for row in rows(4)]
    sums = []
    for seed in (1, 2):
        frame = frame_of(spark, found, seed).withColumn("hash", F.lit(0))
        result = bs.features(frame, RULES, SCHEMA, order_by=["at"])
        sums.append(result.orderBy("n").drop("n").toArrow().to_pylist())
    assert sums[0] == sums[1]


def test_features_in_a_chain_of_transformations(spark):
    payments = spark.createDataFrame(
        [("p1", 0, "x", "70"), ("p2", 1_000, "x", "0.5")], "id string, at long, payer string, amount string"
    )
    short, other = (
        bs.with_features([RULES[0].model_copy(update={"rule_id": name})], SCHEMA, order_by=["at", "id"])
        for name in ("short", "other")
    )
    result = payments.withColumn("amount", F.col("amount").cast("decimal(9,2)")).transform(short)
    with pytest.raises(bs.FrameError, match=r"columns outcome: .* give all rules to one call"):
        result.transform(other)
    result = result.drop("outcome").transform(other)
    assert result.columns[-3:] == ["outcome", "other.value", "other.fired"]
    assert [(row["id"], row["short.value"], row["short.fired"]) for row in result.orderBy("id").collect()] == [
        ("p1", Decimal("70.00"), True),
        ("p2", Decimal("70.50"), True),
    ]


def test_columns_of_any_type_and_name_come_back_as_they_were(spark):
    found = rows(3, 60)
    frame = frame_of(spark, found, 3).selectExpr(
        "* except (at)",
        "timestamp_millis(at) AS at",
        "cast(n AS timestamp) AS `a.b`",
        "map(n, cast(id AS binary)) AS `back``tick`",
        "parse_json('[1]') AS any",
        "n AS twice",
        "id AS twice",
    )
    untyped = bs.schema(SCHEMA.model_dump(mode="json", exclude_unset=True) | {"event_time": {"field": "at"}})
    expected = buckets.features(table_of(found), RULES, SCHEMA)
    result = bs.features(frame.drop("twice"), RULES, untyped, order_by=["n"])
    assert result.schema.fields[: len(frame.columns) - 2] == frame.drop("twice").schema.fields
    scored = result.orderBy("n").toArrow()
    assert scored.select(["a.b", "back`tick"]).equals(frame.orderBy("n").toArrow().select(["a.b", "back`tick"]))
    assert scored["short.value"].to_pylist() == expected["short.value"].to_pylist()
    twice = bs.features(frame.drop("any", "back`tick"), RULES, untyped, order_by=["n"]).orderBy("n").toArrow()
    assert twice["short.value"].to_pylist() == expected["short.value"].to_pylist()
    assert twice.column(twice.column_names.index("twice")).to_pylist() == [row["n"] for row in found]


def test_results_do_not_depend_on_the_time_zone_of_the_session(spark):
    frame = frame_of(spark, rows(1, 40), 1).withColumn("payer", F.timestamp_millis("at"))
    zone, found = spark.conf.get("spark.sql.session.timeZone"), []
    try:
        for other in ("Asia/Kolkata", "UTC"):
            spark.conf.set("spark.sql.session.timeZone", other)
            results = bs.evaluate(frame, RULES[:1], SCHEMA, order_by=["n"])
            found.append(in_any_order(results.dead_letters.toArrow()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found[0] == found[1]
    assert "+00:00" in found[0][0]


def refused(work) -> str:
    """What is said of it."""
    with pytest.raises(bs.FrameError) as caught:
        work()
    return caught.value.getCondition()


def test_rules_and_schema_are_taken_as_models_as_written_and_as_files(spark, tmp_path):
    written = [rule.model_dump(mode="json", exclude_unset=True) for rule in RULES[:1]]
    declared = SCHEMA.model_dump(mode="json")
    (tmp_path / "rules.json").write_text(json.dumps({"rules": written}))
    (tmp_path / "schema.json").write_text(json.dumps(declared))
    frame = frame_of(spark, rows(1, 20), 1)
    kinds = [(RULES[:1], SCHEMA), (written, declared), (written[0], declared)]
    for rules, schema in (*kinds, (str(tmp_path / "rules.json"), tmp_path / "schema.json")):
        of_frame = bs.features(frame, rules, schema, order_by=["n"], engine={"late": "evaluate"})
        assert of_frame.columns == frame.transform(bs.with_features(rules, schema, order_by=["n"])).columns
        assert set(bs.evaluate(frame, rules, schema, order_by=["n"]).alerts.columns) >= {"alert_id"}


@pytest.mark.parametrize("source", ["", None, 5, {"rules": None}, "file:/rules.yaml"], ids=repr)
def test_what_is_no_source_of_rules_or_of_a_schema_is_refused_in_one_line(source, as_worded):
    for read in (bs.rules, bs.schema):
        with pytest.raises(bs.FrameError, check=as_worded):
            read(source)


def test_lists_are_taken_as_load_list_returns_them_and_by_the_paths_of_their_files(spark, tmp_path, as_worded):
    (path := tmp_path / "blocked.csv").write_text("key\np1\n")
    count = {"n": {"function": "count", "window": "1h"}}
    rule = {"rule_id": "r", "group_by": ["payer"], "features": count, "when": "n > 0 AND payer IN LIST blocked"}
    frame = frame_of(spark, rows(1, 20), 1)
    for blocked in (path, str(path), buckets.load_list(path)):
        bs.features(frame, rule, SCHEMA, order_by=["n"], lists={"blocked": blocked})
    for blocked in (["p1"], ""):
        with pytest.raises(bs.FrameError, check=as_worded):
            bs.features(frame, rule, SCHEMA, order_by=["n"], lists={"blocked": blocked})


def test_columns_are_found_by_their_names_whatever_these_are(spark):
    frame = frame_of(spark, rows(1, 20), 1).selectExpr("*", "n AS `a.b`", "-n AS `N``1`", "kind AS `Kind`")
    expected = bs.features(frame, RULES, SCHEMA, order_by=["n"]).orderBy("n").toArrow()
    for order_by in (["a.b"], ["`a.b`"], iter(["a.b"]), [F.col("`N``1`").desc()]):
        assert bs.features(frame, RULES, SCHEMA, order_by=order_by).orderBy("n").toArrow() == expected
    assert bs.features(frame, RULES, SCHEMA, order_by=["N`1"]).orderBy("n").toArrow() != expected


def test_a_frame_of_no_session_in_this_process_is_refused(spark):
    class Remote(DataFrame):  # As Spark Connect's, which has all but what is of Java
        def __new__(cls):
            return object.__new__(cls)

        def __getattr__(self, name: str):
            raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})

    for entry in (bs.features, bs.evaluate, bs.backtest, partial(bs.stream, checkpoint="cp")):
        assert refused(lambda entry=entry: entry(Remote(), RULES, SCHEMA, order_by=["n"])) == "NOT_A_FRAME"
    frame = frame_of(spark, rows(1, 5), 1)
    assert refused(lambda: bs.backtest(frame, RULES, SCHEMA, order_by=["n"], fraud=Remote())) == "NOT_A_FRAME"


def test_a_session_whose_tasks_talk_over_tcp_is_told_once(spark, monkeypatch):
    frame = frame_of(spark, rows(1, 5), 1)
    monkeypatch.setattr("buckets.spark.frame_input._SOCKETS", "spark.not.set")
    with pytest.warns(UserWarning, match="over TCP a large task may wait for ever") as told:
        bs.features(frame, RULES, SCHEMA, order_by=["n"])
    bs.features(frame, RULES, SCHEMA, order_by=["n"])
    assert [warning.filename for warning in told] == [__file__]


@pytest.fixture
def logged(monkeypatch) -> list[str]:
    """What PySpark logs of what it raises."""
    found: list[str] = []
    for kind in ("DataFrame", "SQL"):
        monkeypatch.setattr(PySparkLogger.getLogger(f"{kind}QueryContextLogger"), "handle", found.append)
    return found


def test_what_cannot_be_scored_is_refused_at_once(spark, logged):
    frame = frame_of(spark, rows(1, 5), 1)
    stream = spark.readStream.format("rate").load()
    by_row = SCHEMA.model_copy(update={"identity": SCHEMA.identity.model_copy(update={"row": True})})
    assert refused(lambda: bs.features(stream, RULES, SCHEMA, order_by=["n"])) == "STREAMING_FRAME"
    assert refused(lambda: bs.features(table_of(rows(1, 5)), RULES, SCHEMA, order_by=["n"])) == "NOT_A_FRAME"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by="n")) == "ORDER_MISSING"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=[])) == "ORDER_MISSING"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=["m"])) == "COLUMN_MISSING"
    assert refused(lambda: bs.features(frame.drop("id"), RULES, SCHEMA, order_by=["n"])) == "COLUMN_MISSING"
    assert refused(lambda: bs.features(frame.drop("amount"), RULES, SCHEMA, order_by=["n"])) == "COLUMN_MISSING"
    assert refused(lambda: bs.rules(5)) == "INVALID_RULES"
    assert bs.rules({"rules": RULES}) == RULES
    for column in (F.rand(1), F.expr("uuid()"), F.monotonically_increasing_id()):
        other = frame.withColumn("other", column)
        assert refused(lambda other=other: bs.features(other, RULES, SCHEMA, order_by=["n"])) == "NOT_DETERMINISTIC"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=[F.rand(1)])) == "NOT_DETERMINISTIC"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=[None])) == "COLUMN_MISSING"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=[3])) == "COLUMN_MISSING"
    for column in (F.col("m") + 1, F.expr("m + 1"), "a`", F.create_map("n", "id")):
        assert refused(lambda column=column: bs.features(frame, RULES, SCHEMA, order_by=[column])) == "COLUMN_MISSING"
    unhashed = frame.selectExpr("*", "1 AS x", "2 AS x", "map(n, id) AS m")
    assert refused(lambda: bs.features(unhashed, RULES, SCHEMA, order_by=["at"])) == "COLUMN_MISSING"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=["n"], engine={"lat": 1})) == "INVALID_ENGINE"
    assert refused(lambda: bs.features(frame, RULES, SCHEMA, order_by=["n"], flags="yes")) == "INVALID_OPTION"
    for lists in (["blocked.csv"], {"blocked": "none.csv"}, {"blocked": 3}):
        given = {"order_by": ["n"], "lists": lists}
        assert refused(lambda given=given: bs.evaluate(frame, RULES, SCHEMA, **given)) == "INVALID_LISTS"
    span = {"begin": date(2026, 1, 1)}, {"end": "2026-01-01"}, {"sweep": "short.limit=1"}, {"sweep": {"short.limit": 1}}
    for wrong in (
        *span,
        {"fraud": 3},
        {"begin": datetime(2026, 1, 1, tzinfo=UTC), "end": datetime(2025, 1, 1, tzinfo=UTC)},
        {"fraud": {"x": 1}},
        {"fraud": spark.createDataFrame([("e1", "a lot")], "id string, amount string")},
        {"fraud": spark.createDataFrame([("e1", "1"), ("e1", "2")], "id string, amount string")},
    ):
        given = {"order_by": ["n"], **wrong}
        assert refused(lambda given=given: bs.backtest(frame, RULES, SCHEMA, **given)) == "INVALID_BACKTEST"
    nameless = spark.createDataFrame([("e1",)], "name string")
    unknown = {"order_by": ["n"], "fraud": nameless}
    assert refused(lambda: bs.backtest(frame, RULES, SCHEMA, **unknown)) == "COLUMN_MISSING"
    assert logged == []
    for name in ("id", "shop"):
        twice = frame.selectExpr("*", name)
        assert refused(lambda twice=twice: bs.evaluate(twice, RULES, SCHEMA, order_by=["n"])) == "COLUMN_TWICE"
    months = frame.selectExpr("*", "interval '1' month AS months")
    assert refused(lambda: bs.features(months, RULES, SCHEMA, order_by=["n"])) == "COLUMN_TYPE"
    assert refused(lambda: bs.features(frame, RULES, {"event_id": "id"}, order_by=["n"])) == "INVALID_SCHEMA"
    assert refused(lambda: bs.features(frame, RULES, by_row, order_by=["n"])) == "NO_EVENT_ID"
    named = frame.withColumn("Outcome", F.lit(1))
    assert refused(lambda: bs.features(named, RULES, SCHEMA, order_by=["n"])) == "COLUMN_TAKEN"
    assert refused(lambda: bs.features(frame, OVER_ALERTS, SCHEMA, order_by=["n"])) == "INVALID_RULES"
    assert refused(lambda: bs.rules([{"rule_id": "r"}])) == "INVALID_RULES"
    assert refused(lambda: bs.schema({"event_id": "id"})) == "INVALID_SCHEMA"
    results = bs.evaluate(frame, RULES, SCHEMA, order_by=["n"])
    with pytest.raises(AttributeError, match="alerts"):
        results.nothing  # noqa: B018


def test_the_examples_of_the_page_are_right(spark):
    names: dict[str, object] = {"spark": spark}
    for block in blocks_of((PAGES / ON_SPARK).read_text(encoding="utf-8")):
        run_session(block.text, names, ON_SPARK)
