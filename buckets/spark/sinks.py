"""Sinks of a batch: topics and Delta tables.

Most results of a batch are on the driver, as a few payloads, and are written from there. Executors write the rest from
spilled files. A batch counts as written once the brokers have acknowledged all messages, or all commits are made. A
batch or task that runs again sends the same ids, and a table accepts each batch once.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from buckets.checkpoint.identity import Terms
from buckets.clock import epoch_ms
from buckets.config.kafka import KafkaSettings
from buckets.config.output import OutputSettings
from buckets.delta.commits import DataFile, write_data_file
from buckets.delta.kept_table import KeptTable, WriteApart
from buckets.delta.upkeep import Upkeep
from buckets.delta.whole_table import make_table
from buckets.engine.stages.accounting import PIECES, BatchAccount, by_arrival, cut_by_key
from buckets.engine.stages.shard import Produced
from buckets.errors import BucketsError, Outage
from buckets.kafka.faults import Broker
from buckets.kafka.registry import OutputSchemas, Registry
from buckets.outputs import columns
from buckets.outputs.messages import ID, BinaryFormat, Messages, binary_message
from buckets.spark.scored_batch import ScoredBatch, in_microseconds, run_as_second_job
from buckets.spark.spilled import Spilled, is_cut_by_key
from buckets.stores.location import location

if TYPE_CHECKING:
    from buckets.kafka.sender import Sender

_ROWS_AT_ONCE = 50_000  # The most rows converted to messages at a time
_AWAY, _FAILED = "away", "failed"  # What a task reports if it could not send


class KafkaSink:
    """Writes the outputs of each batch to topics."""

    def __init__(self, kafka: KafkaSettings, output: OutputSettings) -> None:
        """Write to the topics of `output`."""
        from buckets.kafka.sender import Sender

        self._kafka, self._output, self._sender = kafka, output, Sender(kafka)
        self._schemas = None  # The schema numbers of messages that are not JSON
        if output.format != "json":
            assert kafka.registry is not None
            self._schemas = OutputSchemas(Registry(kafka.registry), output, output.format)

    def prepare(self) -> None:
        """Check that all topics exist, and that the registry accepts the message schemas."""
        Broker(self._kafka).check_topics(self._output.topics_in_use().values())
        if self._schemas is not None:
            # If it does not answer now, it is asked again once there is something to write, which then waits.
            with contextlib.suppress(Outage):
                self._schemas.register()

    def write(self, batch: ScoredBatch) -> None:
        """Send the results of a batch, and wait for the brokers to acknowledge them."""
        decided_ms = epoch_ms()
        for output in columns.TOPICS:
            if batch.has(output):
                binary, written_in = None, self._output.format
                if self._schemas is not None and written_in != "json":
                    binary = self._schemas.prefix(output), written_in
                messages = Messages(batch.rule_set, batch.terms.event_schema)
                sending = OutputSender(output, self._output.topic(output), messages, binary, decided_ms)
                if is_cut_by_key(output, batch.terms) and batch.spilled(output):
                    self._sender.flush()
                    send_spilled(sending, self._kafka, output, batch)
                else:
                    sending.send(self._sender, batch.table(output))
        self._sender.flush()


@dataclass(frozen=True)
class OutputSender:
    """Turns rows of an output into messages, on the driver or in tasks."""

    output: str  # its name
    topic: str  # the destination
    messages: Messages  # builds the messages
    binary: tuple[bytes, BinaryFormat] | None  # the prefix and the format of each; None for JSON
    decided_ms: int  # when the batch's results were known

    def send(self, sender: "Sender", rows: pa.Table) -> None:
        """Send rows; the sender's `flush` reports whether they have arrived."""
        for some in by_arrival(rows, _ROWS_AT_ONCE):
            for message in self.messages.of(self.output, some, self.decided_ms):
                value: str | bytes = message.value
                if self.binary is not None:
                    prefix, written_in = self.binary
                    value = prefix + binary_message(self.output, written_in, json.loads(message.value))
                sender.send(self.topic, message.key, value, {ID: message.identity})


def send_spilled(sending: OutputSender, kafka: KafkaSettings, output: str, batch: ScoredBatch) -> None:
    """Let executors send an output with spilled payloads; one task sends all messages of a key, in order."""
    lying, decoder = batch.spilled(output), batch.decoder
    at_hand = list(batch.tables_at_hand(output))
    cut = cut_by_key(pa.concat_tables(at_hand, promote_options="permissive")) if at_hand else [b""] * PIECES

    def work(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Produced]:
        from buckets.kafka.sender import Sender

        sender = Sender(kafka)
        try:
            for number, packed in pieces:
                payloads = [*filter(None, [packed]), *(each for at in lying for each in at.payloads([number]))]
                if payloads:
                    sending.send(sender, decoder.table(output, payloads))
            sender.flush()
        except BucketsError as error:
            # Reported, not raised: Spark would retry at once what the job must wait for, or what a retry cannot fix.
            yield Produced(_AWAY if isinstance(error, Outage) else _FAILED, 0, error.message.encode())

    for fault in run_as_second_job(batch.session, list(enumerate(cut)), work):
        raise (Outage if fault.output == _AWAY else BucketsError)(fault.payload.decode())


BATCH_ID = "batch_id"  # The first column of each table: the batch that wrote the row


def table_columns(terms: Terms) -> dict[str, pa.Schema]:
    """Return the columns of each output as they are stored in its table."""
    outputs = columns.output_columns(terms.event_schema.largest_scale) | {columns.BATCHES: columns.BATCH_COLUMNS}
    if not terms.evaluations:
        del outputs[columns.EVALUATIONS]
    return {name: _as_stored(schema) for name, schema in outputs.items()}


def _as_stored(schema: pa.Schema) -> pa.Schema:
    kept = [field for field in in_microseconds(schema) if field.name not in ("source_order", BATCH_ID)]
    return pa.schema([pa.field(BATCH_ID, pa.int64()), *kept])


def _with_batch(table: pa.Table, batch_id: int, schema: pa.Schema) -> pa.Table:
    batch = pa.array(np.full(table.num_rows, batch_id))
    return table.append_column(BATCH_ID, batch).select(schema.names).cast(schema)


class DeltaSink:
    """Writes the outputs of each batch to Delta tables under one folder."""

    def __init__(self, folder: Path, identity: str, upkeep: Upkeep | None = None) -> None:
        """Write under `folder`; the checkpoint's identity and the batch number make each write happen once."""
        self._folder, self._upkeep = folder, upkeep
        self._tables = {name: KeptTable(folder / name, f"{identity}-{name}") for name in columns.TABLES}

    def prepare(self, terms: Terms) -> None:
        """Create missing tables, so that every output can be read from the start."""
        for name, schema in table_columns(terms).items():
            make_table(self._folder / name, schema)
            if self._upkeep is not None:
                self._upkeep.prepare(self._folder / name)

    def write(self, batch: ScoredBatch) -> None:
        """Write a batch's results: all tables in parallel, since a commit is mostly waiting, then the accounts."""
        schemas = {name: schema for name, schema in table_columns(batch.terms).items() if batch.has(name)}
        with ThreadPoolExecutor(max_workers=max(1, len(schemas))) as pool:
            list(pool.map(lambda name: self._write_output(name, schemas[name], batch), schemas))
        self.append_accounts(batch.account)

    def _write_output(self, name: str, schema: pa.Schema, batch: ScoredBatch) -> None:
        batch_id = batch.account.batch_id
        if name == columns.DEAD_LETTERS or not batch.spilled(name):
            self._append(name, batch_id, lambda: _with_batch(batch.table(name), batch_id, schema))
            return

        def at_hand() -> pa.Table:
            tables = [_with_batch(table, batch_id, schema) for table in batch.tables_at_hand(name)]
            return pa.concat_tables([schema.empty_table(), *tables])

        with nullcontext() if self._upkeep is None else self._upkeep.nothing_expires(self._folder / name):
            self._append(name, batch_id, at_hand, partial(write_spilled, self._folder / name, name, batch))

    def append_accounts(self, account: BatchAccount) -> None:
        """Append the accounts of a batch."""
        schema = _as_stored(columns.BATCH_COLUMNS)
        self._append(columns.BATCHES, account.batch_id, lambda: pa.Table.from_pylist(account.rows(), schema=schema))

    def _append(
        self, name: str, batch_id: int, make: Callable[[], pa.Table], write_apart: WriteApart = lambda columns: ()
    ) -> None:
        self._tables[name].append(batch_id, make, write_apart)
        if self._upkeep is not None:
            self._upkeep.appended(self._folder / name)


def write_spilled(table: Path, output: str, batch: ScoredBatch, stored: pa.Schema) -> list[DataFile]:
    """Let executors write the spilled payloads of an output as files of its table; a commit must add them."""
    of_file: dict[str, list[Spilled]] = {}
    for lying in batch.spilled(output):
        of_file.setdefault(lying.path, []).append(lying)
    folder, decoder, batch_id = str(table), batch.decoder, batch.account.batch_id

    def work(files: Iterable[list[Spilled]]) -> Iterator[Produced]:
        for several in files:
            payloads = (packed for lying in several for packed in lying.payloads())
            rows = (_with_batch(each, batch_id, stored) for each in decoder.tables(output, payloads))
            file = write_data_file(location(folder), rows, stored)
            yield Produced(output, file.rows, file.to_json())

    written = run_as_second_job(batch.session, list(of_file.values()), work)
    return [DataFile.from_json(table, each.payload) for each in written]
