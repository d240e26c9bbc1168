"""The payloads of a batch's outputs, decoded: the one place where they become the rows that a sink writes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import one_dead_letter_per_event
from buckets.engine.stages.shard import evaluation_rows
from buckets.events.schema import EventSchema
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class OutputDecoder:
    """Decodes what the shards of one batch produced.

    Attributes:
        rule_set: the rules of the batch.
        schema: its event schema.
        engine: its settings.
    """

    rule_set: RuleSet
    schema: EventSchema
    engine: EngineSettings

    def tables(self, output: str, payloads: Iterable[bytes]) -> Iterator[pa.Table]:
        """Yield the rows of an output, a table for each payload, decoded one after the other.

        Dead letters come as one table: an event may have failed in several groups and shards, and has one row.

        Args:
            output: its name.
            payloads: what was produced of it, or a part of that; of dead letters all of it.
        """
        decoded = (self._rows(output, packed) for packed in payloads)
        if output != columns.DEAD_LETTERS:
            yield from decoded
        elif dead_letters := list(decoded):
            yield one_dead_letter_per_event(pa.concat_tables(dead_letters))

    def table(self, output: str, payloads: Iterable[bytes]) -> pa.Table:
        """Return the rows of an output as one table; there must be some."""
        return pa.concat_tables(self.tables(output, payloads), promote_options="permissive")

    def _rows(self, output: str, packed: bytes) -> pa.Table:
        if output == columns.EVALUATIONS:
            return evaluation_rows(packed, self.rule_set, self.schema, self.engine)
        return payload.unpack(packed).replace_schema_metadata()
