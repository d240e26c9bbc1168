"""Payloads that are too large for the driver, and files of tables that tasks write, in a store."""

from deltalake import DeltaTable

from buckets.checkpoint.identity import Terms
from buckets.delta.commits import DataFile, write_data_file
from buckets.delta.kept_table import KeptTable
from buckets.delta.whole_table import make_table, open_table
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.shard import Produced
from buckets.files import remove_tree
from buckets.outputs import columns
from buckets.spark import spilled
from buckets.spark.scored_batch import ScoredBatch
from buckets.stores.location import location
from tests.core.examples import SCHEMA
from tests.core.test_output_decoder import DECODER, ENGINE, RULES, produced


def test_what_spills_into_a_store_is_read_from_there_and_gone_afterwards(bucket: str, monkeypatch):
    folder, payloads = location(f"s3://{bucket}/spilled/000000007"), produced()
    made = [Produced(name, 1, packed) for name, several in payloads.items() for packed in several]
    monkeypatch.setattr(spilled, "spill_of_task", lambda: (folder, 0))
    terms = Terms(event_schema=SCHEMA, engine=ENGINE, evaluations=True, output="kafka")
    rows = list(spilled.beyond_share(made, 1, RULES, terms))
    batch = ScoredBatch(BatchAccount(0, RULES.version, 0, 0, (), ()), RULES, terms, rows, None)
    assert len(list(folder.glob("*.payloads"))) == 1
    for name in columns.output_columns(SCHEMA.largest_scale):
        found, expected = batch.table(name).to_pylist(), DECODER.table(name, payloads[name]).to_pylist()
        assert sorted(found, key=repr) == sorted(expected, key=repr)
    remove_tree(folder)
    assert not list(folder.glob("*"))


def test_a_file_that_a_task_has_written_into_a_table_of_a_store_comes_with_the_commit(bucket: str):
    path = location(f"s3://{bucket}/tables/evaluations")
    rows = DECODER.table(columns.EVALUATIONS, produced()[columns.EVALUATIONS]).select(["event_id", "count"])
    make_table(path, rows.schema)

    def write_apart(stored):
        text = write_data_file(location(str(path)), [rows.slice(1)], stored).to_json()
        return [DataFile.from_json(path, text)]

    for _ in range(2):
        KeptTable(path, "me").append(0, lambda: rows.slice(0, 1), write_apart)
    table: DeltaTable = open_table(path)
    assert table.version() == 1
    assert sorted(table.to_pyarrow_table().to_pylist(), key=repr) == sorted(rows.to_pylist(), key=repr)
