"""Results into topics, all of a batch in one go.

What a batch produced is on the driver already, as few payloads, and is sent from there. What is too much for that lies
in files, cut by the keys of messages, and is sent by executors. The batch counts as written when the brokers have
acknowledged all of it. A batch or a task that is run again sends the same ids.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from buckets.clock import epoch_ms
from buckets.config.kafka import KafkaSettings
from buckets.config.output import OutputSettings
from buckets.engine.stages.accounting import PIECES, by_arrival, cut_by_key
from buckets.engine.stages.shard import Produced
from buckets.errors import BucketsError, Outage
from buckets.kafka.faults import Broker
from buckets.kafka.registry import OutputSchemas, Registry
from buckets.kafka.sender import Sender
from buckets.outputs import columns
from buckets.outputs.binary_messages import BinaryFormat, binary_message
from buckets.outputs.messages import ID, Messages
from buckets.spark.scored_batch import ScoredBatch, run_apart
from buckets.spark.spilled import is_cut_by_key

_ROWS_AT_ONCE = 50_000  # So many rows are messages at once
_AWAY, _FAILED = "away", "failed"  # What a task tells that could not send


class BinarySchemas(NamedTuple):
    """How messages are written that are no JSON, and the numbers of their schemas."""

    written_in: BinaryFormat
    schemas: OutputSchemas


class BinaryOutput(NamedTuple):
    """How messages of an output are written that are no JSON, and what stands before each."""

    written_in: BinaryFormat
    prefix: bytes


class KafkaSink:
    """Writes the outputs of each batch to topics."""

    def __init__(self, kafka: KafkaSettings, output: OutputSettings) -> None:
        """Write to the topics of `output`.

        Args:
            kafka: how Kafka is reached.
            output: the topics.
        """
        self._kafka = kafka
        self._broker = Broker(kafka)
        self._output = output
        self._sender = Sender(kafka)
        self._binary = None
        if output.format != "json":
            assert kafka.registry is not None
            self._binary = BinarySchemas(output.format, OutputSchemas(Registry(kafka.registry), output, output.format))

    def prepare(self) -> None:
        """See that all topics are there, and that the registry takes the schemas of messages.

        Raises:
            BucketsError: one is not, or it refuses one.
        """
        self._broker.check_topics(self._output.topics_in_use().values())
        if self._binary is not None:
            # Away, the registry is asked again when there is something to write, which is then waited for.
            with contextlib.suppress(Outage):
                self._binary.schemas.register()

    def write(self, batch: ScoredBatch) -> None:
        """Send what a batch produced, and wait until it is there.

        Raises:
            BucketsError: it cannot be sent.
            Outage: the brokers or the registry do not answer.
        """
        decided_ms = epoch_ms()
        for output in columns.TOPICS:
            if batch.has(output):
                sending = self._sending(output, batch, decided_ms)
                if is_cut_by_key(output, batch.terms) and batch.spilled(output):
                    self._sender.flush()
                    send_spilled(sending, self._kafka, output, batch)
                else:
                    sending.send(self._sender, batch.table(output))
        self._sender.flush()

    def _sending(self, output: str, batch: ScoredBatch, decided_ms: int) -> "OutputSender":
        binary = None
        if self._binary is not None:
            binary = BinaryOutput(self._binary.written_in, self._binary.schemas.prefix(output))
        messages = Messages(batch.rule_set, batch.terms.event_schema)
        return OutputSender(output, self._output.topic(output), messages, binary, decided_ms)


@dataclass(frozen=True)
class OutputSender:
    """How rows of an output become messages; tasks get it too."""

    output: str  # its name
    topic: str  # where they go
    messages: Messages  # makes them
    binary: BinaryOutput | None  # how they are written; None for JSON
    decided_ms: int  # when the results of the batch were known

    def send(self, sender: Sender, rows: pa.Table) -> None:
        """Send rows; the sender's `flush` says whether they have arrived."""
        for some in by_arrival(rows, _ROWS_AT_ONCE):
            for key, value, identity in self._values(some):
                sender.send(self.topic, key, value, {ID: identity})

    def _values(self, rows: pa.Table) -> Iterator[tuple[str, str | bytes, str]]:
        """Yield key, value and identity of each message."""
        if self.binary is None:
            for message in self.messages.of(self.output, rows, self.decided_ms):
                yield message.key, message.value, message.identity
            return
        prefix, written_in = self.binary.prefix, self.binary.written_in
        for row in self.messages.shown(self.output, rows, self.decided_ms):
            yield row.key, prefix + binary_message(self.output, written_in, row.fields), row.identity


def send_spilled(sending: OutputSender, kafka: KafkaSettings, output: str, batch: ScoredBatch) -> None:
    """Have executors send an output with spilled payloads, all messages of a key from one task, in their order.

    Raises:
        BucketsError: it cannot be sent.
        Outage: the brokers do not answer.
    """
    lying, decoder = batch.spilled(output), batch.decoder
    at_hand = list(batch.tables_at_hand(output))
    cut = cut_by_key(pa.concat_tables(at_hand, promote_options="permissive")) if at_hand else [b""] * PIECES

    def work(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Produced]:
        sender = Sender(kafka)
        try:
            for number, packed in pieces:
                payloads = [*filter(None, [packed]), *(each for at in lying for each in at.payloads([number]))]
                if payloads:
                    sending.send(sender, decoder.table(output, payloads))
            sender.flush()
        except BucketsError as error:
            # Told and not raised: Spark would try again at once what the job waits for, or what never helps.
            yield Produced(_AWAY if isinstance(error, Outage) else _FAILED, 0, error.message.encode())

    for fault in run_apart(batch.session, list(enumerate(cut)), work):
        raise (Outage if fault.output == _AWAY else BucketsError)(fault.payload.decode())
