"""Values in the names of folders become fields that a file does not have, whatever its format."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buckets.archive.delta_source import open_events
from buckets.errors import BucketsError
from buckets.events.arrivals import parse
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.parquet_rows import check_parquet, folder_values
from buckets.events.schema import EventSchema

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "at",
        "attributes": {"channel": "string", "dt": "string", "year": "long", "day of": "string"},
        "measures": {"amount": {"scale": 2}},
    }
)
FOLDER = "dt=2026-01-01/channel=web%2Fapp/year=2026/day%20of=a=b/amount=1.5"
VALUES = {"channel": "web/app", "dt": "2026-01-01", "year": 2026, "day of": "a=b", "amount": 150}


def write_json(path, rows, columns):
    path.write_text("".join(json.dumps({name: row[name] for name in columns}) + "\n" for row in rows))


def write_records(path, rows, columns):
    path.write_text(json.dumps([{name: row[name] for name in columns} for row in rows]))


def write_csv(path, rows, columns):
    lines = [",".join("" if row[name] is None else str(row[name]) for name in columns) for row in rows]
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")


def write_parquet(path, rows, columns):
    pq.write_table(pa.table({name: pa.array([row[name] for row in rows]) for name in columns}), path)


FORMATS = {
    "day.jsonl": (write_json, SCHEMA),
    "day.json": (write_records, SCHEMA.model_copy(update={"records": "[]"})),
    "day.csv": (write_csv, SCHEMA),
    "day.parquet": (write_parquet, SCHEMA),
}


def events_of(parts, schema):
    read = [parse(part, schema, frozenset()) for part in parts]
    assert not [letter for _, letters in read for letter in letters]
    columns = [part.attributes | part.measures | {"id": part.event_id} for part, _ in read]
    return [
        dict(zip(part, row, strict=True))
        for part in columns
        for row in zip(*(values.to_pylist() for values in part.values()), strict=True)
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_a_field_that_a_file_lacks_is_in_the_name_of_its_folder(tmp_path, monkeypatch, name):
    write, schema = FORMATS[name]
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    write(folder / name, [{"id": "a", "at": 1}, {"id": "b", "at": 2}], ["id", "at"])
    expected = [VALUES | {"id": "a"}, VALUES | {"id": "b"}]
    assert events_of(file_arrivals(open_event_file(folder / name, schema), schema), schema) == expected
    assert events_of(open_events(tmp_path, schema, None, print), schema) == expected
    monkeypatch.chdir(folder)
    named = open_event_file(type(folder)(name), schema)
    assert events_of(file_arrivals(named, schema), schema) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_what_the_file_says_comes_first(tmp_path, name):
    write, schema = FORMATS[name]
    folder = tmp_path / "channel=web"
    folder.mkdir()
    write(folder / name, [{"id": "a", "at": 1, "channel": "pos"}, {"id": "b", "at": 2, "channel": None}],
          ["id", "at", "channel"])  # fmt: skip
    found = events_of(file_arrivals(open_event_file(folder / name, schema), schema), schema)
    # JSON has no columns: what an event does not have, or as null, it has of its folder.
    assert [row["channel"] for row in found] == ["pos", "web" if "json" in name else None]


@pytest.mark.parametrize("name", FORMATS)
def test_id_and_time_may_be_in_the_names_of_folders_too(tmp_path, name):
    write, schema = FORMATS[name]
    folder = tmp_path / "at=5" / "dt=__HIVE_DEFAULT_PARTITION__"
    folder.mkdir(parents=True)
    write(folder / name, [{"id": "a"}], ["id"])
    file = open_event_file(folder / name, schema)
    ((events, _),) = (parse(part, schema, frozenset()) for part in file_arrivals(file, schema))
    assert (events.times_ms.tolist(), events.attributes["dt"].to_pylist()) == ([5], [None])


def test_a_folder_is_descended_only_where_names_have_values(tmp_path):
    for folder in ("", "dt=1", "dt=1/channel=a", "old", "old/dt=2", "_x=1"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "day.csv").write_text(f"id,at\n{folder or 'top'},1\n")
    found = events_of(open_events(tmp_path, SCHEMA, None, print), SCHEMA)
    assert sorted(row["id"] for row in found) == ["dt=1", "dt=1/channel=a", "top"]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/a/b.csv", {}),
        ("/a=1/b=2.csv", {"a": "1"}),
        ("s3a://bucket/a=1/a=2/b.csv", {"a": "2"}),
        ("/a=/=b/c%3Dd=e%25/x.csv", {"a": "", "c=d": "e%"}),
        ("/a=%FF/b=%C3%A9/x.csv", {"a": "%FF", "b": "é"}),
        ("/a=__HIVE_DEFAULT_PARTITION__/x.csv", {"a": None}),
    ],
)
def test_values_are_decoded(path, values):
    assert folder_values(path) == values


def test_a_column_that_neither_file_nor_folder_has_is_named(tmp_path, as_worded):
    folder = tmp_path / "channel=web"
    folder.mkdir()
    write_csv(folder / "day.csv", [{"id": "a"}], ["id"])
    with pytest.raises(BucketsError, check=as_worded):
        open_event_file(folder / "day.csv", SCHEMA)


def test_a_column_that_orders_rows_is_in_the_file(tmp_path, as_worded):
    folder = tmp_path / "at=5"
    folder.mkdir()
    write_parquet(folder / "day.parquet", [{"id": "a"}], ["id"])
    assert check_parquet(folder / "day.parquet", SCHEMA).metadata.num_rows == 1
    with pytest.raises(BucketsError, check=as_worded):
        check_parquet(folder / "day.parquet", SCHEMA, "at")


def test_rows_of_files_of_one_name_in_several_folders_have_ids_of_their_own(tmp_path):
    schema = EventSchema.model_validate(
        {"event_id": {"row": True}, "event_time": "at", "attributes": {"day": "string"}}
    )
    for day in ("1", "2"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "part-0.csv").write_text("at\n1700000000000\n")
    found = [parse(rows, schema, frozenset())[0] for rows in open_events(tmp_path, schema, None, print)]
    assert [events.event_id.to_pylist() for events in found] == [["day=1/part-0.csv:2"], ["day=2/part-0.csv:2"]]


def test_fields_that_rules_need_and_no_file_has_are_told(tmp_path):
    told: list[str] = []
    needed = frozenset({"amount", "channel"})
    (tmp_path / "a.csv").write_text("id,at\na,1700000000000\n")
    list(open_events(tmp_path, SCHEMA, None, told.append, needed))
    (tmp_path / "b.jsonl").write_text('{"id": "b", "at": 1700000000001, "amount": "1"}\n')
    list(open_events(tmp_path, SCHEMA, None, told.append, needed))
    folder = f"events {tmp_path}: "
    assert told == [
        f"{folder}no column 'amount', 'channel', which rules need: taken as missing",
        f"{folder}the first 100 events have no 'channel', which rules need: taken as missing",
    ]
