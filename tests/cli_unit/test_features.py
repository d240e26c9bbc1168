"""The command `buckets features`: every kind of input and output, and what is refused."""

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import buckets as library
from buckets.cli.console import JSON_VERSION
from buckets.history.features import read_ids
from tests.cli_unit.archived_conf import archived_conf
from tests.cli_unit.ran import one_line
from tests.core.examples import SCHEMA, written_rule

ROWS = [
    {"id": f"e{n}", "at": 1_700_000_000_000 + n * 1000, "payer": f"p{n % 3}", "amount": Decimal(n) + Decimal("0.25")}
    for n in range(20)
]
TABLE = pa.Table.from_pylist(ROWS)


class Folder:
    """A folder with a schema, rules and events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rules, self.schema = path / "rules.yaml", path / "schema.yaml"
        self.schema.write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json", exclude_none=True)))
        self.write_rules(written_rule())

    def write_rules(self, *rules: dict[str, Any]) -> None:
        self.rules.write_text(yaml.safe_dump({"rules": list(rules)}))

    def events(self, kind: str) -> Path:
        """The events in a file, a folder or a table."""
        path = self.path / f"events.{kind}"
        if kind == "csv":
            pacsv.write_csv(TABLE, path)
        elif kind == "jsonl":
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in ROWS))
        elif kind == "delta":
            write_deltalake(path, TABLE.take([*range(10, 20), *range(9, -1, -1)]))
        elif kind == "folder":
            path.mkdir()
            for name, rows, modified_s in (("z", TABLE.slice(0, 7), 1), ("a", TABLE.slice(7), 2)):
                pq.write_table(rows, path / f"{name}.parquet")
                os.utime(path / f"{name}.parquet", (modified_s, modified_s))
        else:
            pq.write_table(TABLE, path)
        return path


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def expected(folder: Folder) -> list[dict[str, Any]]:
    return library.features(TABLE, library.load_rules(folder.rules, SCHEMA), SCHEMA).to_pylist()


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "folder", "delta"])
def test_every_kind_of_input_gives_the_same_rows_in_its_order(kind, folder, buckets):
    out = folder.path / "features.parquet"
    ran = buckets(
        "features", folder.rules, "--events", folder.events(kind), "--schema", folder.schema, "--out", out, "--json"
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == {
        "version": JSON_VERSION,
        "out": str(out),
        "arrived": 20,
        "rows": 20,
        "outcomes": {"evaluated": 20},
        "columns": ["event_id", "event_time", "position", "payer", "outcome", "r.value", "r.fired"],
    }
    assert pq.read_table(out).to_pylist() == expected(folder)


def test_a_delta_table_in_the_order_of_a_column_and_out_as_a_delta_table(folder, buckets):
    events, out = folder.path / "ordered", folder.path / "features"
    write_deltalake(events, TABLE.append_column("number", pa.array(range(20, 0, -1))))
    asked = [
        "features",
        folder.rules,
        "--events",
        events,
        "--schema",
        folder.schema,
        "--out",
        out,
        "--arrival",
        "number",
    ]
    for overwrite in ([], ["--overwrite"]):
        assert buckets(*asked, *overwrite).code == 0
    query = QueryBuilder().register("found", DeltaTable(out)).execute("select * from found order by position")
    found = pa.table(query.read_all()).to_pylist()
    backwards = TABLE.take(list(range(19, -1, -1)))
    rules = library.load_rules(folder.rules, SCHEMA)
    assert found == library.features(backwards, rules, SCHEMA).to_pylist()
    assert [row["outcome"] for row in found] == ["evaluated"] * 3 + ["late"] * 17


def test_flags_say_of_each_feature_whether_it_is_exact_and_warm(folder, buckets):
    out = folder.path / "out.parquet"
    ran = buckets(
        "features", folder.rules, "--events", folder.events("csv"), "--schema", folder.schema, "--out", out, "--flags"
    )
    assert "20 rows of 9 columns" in ran.out
    found = pq.read_table(out)
    assert found["r.value.exact"].to_pylist() == found["r.value.warm"].to_pylist() == [True] * 20


@pytest.mark.parametrize(
    "asked",
    [
        ["--out", "f.parquet"],
        ["--events", "none.csv", "--out", "f.parquet"],
        ["--events", "events.parquet", "--out", "f.parquet", "--master", "local[2]"],
        ["--events", "events.parquet", "--out", "f", "--by", "day"],
        ["--events", "rules.yaml", "--out", "f.parquet"],
        ["--events", "events.parquet", "--out", "taken.parquet"],
        ["--events", "events.parquet", "--out", "full"],
        ["--events", "events.parquet", "--out", "full", "--overwrite"],
        ["--events", "events.parquet", "--out", "events.delta", "--overwrite"],
        ["--events", "events.delta", "--out", "events.parquet", "--overwrite"],
        ["--events", "events.delta", "--out", "taken.parquet", "--overwrite"],
        ["--events", "events.parquet", "--out", "events.parquet", "--overwrite"],
        ["--events", "events.parquet", "--out", "f", "--arrival", "at"],
        ["--events", "events.delta", "--out", "f", "--arrival", "no"],
        ["--events", "events.delta", "--out", "f", "--arrival", "amount"],
        ["--events", "full", "--out", "f.parquet"],
        ["--events", "other.csv", "--out", "f.parquet"],
        ["--conf", "conf.yaml", "--out", "f.parquet", "--arrival", "at"],
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(asked, folder, buckets, monkeypatch, as_worded):
    monkeypatch.chdir(folder.path)
    folder.events("parquet"), folder.events("delta")
    (folder.path / "full").mkdir()
    (folder.path / "full" / "empty.csv").touch()
    (folder.path / "taken.parquet").touch()
    (folder.path / "other.csv").write_text("id,when\ne1,2\n")
    error = one_line(buckets("features", "rules.yaml", "--schema", "schema.yaml", *asked), 1)
    assert as_worded(error)
    assert not (folder.path / "f.parquet").exists()


def test_fields_of_an_archive_have_the_names_of_now_also_before_the_job_has_taken_them(tmp_path, buckets):
    conf, schema = archived_conf(tmp_path), SCHEMA.model_dump(mode="json", exclude_none=True)
    for payer, aliases in (("payer", {}), ("who", {"who": ["payer"]})):
        attributes = {payer if name == "payer" else name: kind for name, kind in SCHEMA.attributes.items()}
        named = schema | {"attributes": attributes, "aliases": aliases}
        (tmp_path / "schema.yaml").write_text(yaml.safe_dump(named))
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [written_rule(group_by=[payer])]}))
        ran = buckets("features", tmp_path / "rules.yaml", "--conf", conf, "--out", tmp_path / f"{payer}.parquet")
        assert ran.code == 0, ran.err
    before, now = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("payer", "who"))
    assert now.rename_columns(before.column_names).equals(before)
    assert "who" in now.column_names
    assert before["r.value"].null_count == 0


def test_rules_that_have_no_features_or_no_name_in_a_delta_table_are_refused(folder, buckets, as_worded):
    asked = ["--events", folder.events("csv"), "--schema", folder.schema, "--out", folder.path / "out"]
    folder.write_rules(written_rule(rule_id="with blanks"))
    assert as_worded(one_line(buckets("features", folder.rules, *asked), 1))
    folder.write_rules(written_rule(on="alerts"))
    assert as_worded(one_line(buckets("features", folder.rules, *asked), 1))


def test_rules_over_alerts_are_left_out_and_that_is_told(folder, buckets, as_worded):
    folder.write_rules(written_rule(), written_rule(rule_id="often", on="alerts"))
    asked = ["--events", folder.events("csv"), "--schema", folder.schema, "--out", folder.path / "f.parquet"]
    ran = buckets("features", folder.rules, *asked)
    assert ran.code == 0
    assert as_worded(ran.err)
    assert "r.value" in pq.read_schema(folder.path / "f.parquet").names
    assert not any(name.startswith("often.") for name in pq.read_schema(folder.path / "f.parquet").names)


@pytest.mark.parametrize("out", ["features.parquet", "features"])
def test_what_an_earlier_run_wrote_is_replaced_also_with_other_columns(out, folder, buckets):
    asked = ["features", folder.rules, "--events", folder.events("csv"), "--schema", folder.schema]
    path, more = folder.path / out, ["--flags"]
    for flags in ([], more, []):
        ran = buckets(*asked, "--out", path, "--overwrite", *flags)
        assert ran.code == 0, ran.err
        names = (pq.read_schema(path) if path.suffix else pa.schema(DeltaTable(path).schema().to_arrow())).names
        assert ("r.value.exact" in names) == (flags == more)


def test_nothing_is_left_of_an_output_that_could_not_be_finished(folder, buckets, as_worded):
    spread = {"spread": {"function": "variance", "of": "amount", "window": "1h"}}
    folder.write_rules({"rule_id": "r", "group_by": ["payer"], "features": spread, "when": "spread > 1"})
    rows = [ROWS[n] | {"amount": Decimal(n) * 10**16} for n in (0, 3, 6, 9)]
    pq.write_table(pa.Table.from_pylist(rows), folder.path / "large.parquet")
    before = sorted(folder.path.iterdir())
    for out in ("out.parquet", "out"):
        asked = ["--events", folder.path / "large.parquet", "--schema", folder.schema, "--out", folder.path / out]
        assert as_worded(one_line(buckets("features", folder.rules, *asked), 1))
    assert sorted(folder.path.iterdir()) == before


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "delta"])
def test_ids_are_read_from_every_kind_of_table(kind, folder, as_worded):
    assert sorted(read_ids(folder.events(kind), "id").to_pylist()) == sorted(row["id"] for row in ROWS)
    with pytest.raises(library.BucketsError, check=as_worded):
        read_ids(folder.events(kind) if kind == "parquet" else folder.path / f"events.{kind}", "event")


def test_numbers_are_ids_as_they_are_written_and_what_is_no_table_is_refused(tmp_path, as_worded):
    (tmp_path / "ids.jsonl").write_text('{"id": 7}\n\n{"id": null}\n{"id": 7}\n{"id": "8"}\n')
    assert read_ids(tmp_path / "ids.jsonl", "id").to_pylist() == ["7", "8"]
    pq.write_table(pa.table({"id": [7, None, 8]}), tmp_path / "ids.parquet")
    assert read_ids(tmp_path / "ids.parquet", "id").to_pylist() == ["7", "8"]
    (tmp_path / "broken.jsonl").write_text("[1]\n")
    for name in ("none.csv", "broken.jsonl"):
        with pytest.raises(library.BucketsError, check=as_worded):
            read_ids(tmp_path / name, "id")
