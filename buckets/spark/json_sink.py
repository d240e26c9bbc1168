"""Results into JSON lines: a file for each output and batch while the query runs, joined in the end."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from buckets import outputs, payload
from buckets.accounting import BatchAccount
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.json_lines import JsonLines
from buckets.ledger import write_whole
from buckets.results import one_letter_an_event
from buckets.rule_set import RuleSet
from buckets.shard import evaluation_rows

OUTPUTS = (
    outputs.EVALUATIONS,
    outputs.ALERTS,
    outputs.SHADOW_ALERTS,
    outputs.LATE_EVENTS,
    outputs.COLLISIONS,
    outputs.DUPLICATES,
    outputs.DEAD_LETTERS,
)


class JsonSink:
    """Writes the outputs of each batch as JSON lines; meant for files that one person looks at."""

    def __init__(self, folder: Path, schema: EventSchema, engine: EngineSettings) -> None:
        """Write parts under `folder`.

        Args:
            folder: where the parts go.
            schema: the event schema.
            engine: the settings of the engine.
        """
        self._folder = folder
        self._schema = schema
        self._engine = engine

    def write(self, produced: DataFrame, rows: dict[str, int], account: BatchAccount, rule_set: RuleSet) -> None:
        """Write the parts of a batch, over those of an earlier try."""
        writer = JsonLines(rule_set, self._schema)
        for name in OUTPUTS:
            if rows.get(name):
                payloads = produced.where(F.col("output") == name).select("payload").collect()
                tables = [self._decode(name, bytes(row.payload), rule_set) for row in payloads]
                table = pa.concat_tables(tables, promote_options="permissive")
                lines = writer.lines(name, one_letter_an_event(table) if name == outputs.DEAD_LETTERS else table)
                part = self._folder / name / f"{account.batch_id:09d}.jsonl"
                write_whole(part, "".join(f"{line}\n" for line in lines))

    def _decode(self, name: str, packed: bytes, rule_set: RuleSet) -> pa.Table:
        if name == outputs.EVALUATIONS:
            return evaluation_rows(packed, rule_set, self._schema, self._engine)
        return payload.unpack(packed).replace_schema_metadata()

    def publish(self, target: Path) -> dict[str, int]:
        """Join the parts of each output into one file under `target`, replacing what is there.

        Returns:
            How many lines each output has.
        """
        target.mkdir(parents=True, exist_ok=True)
        lines: dict[str, int] = {}
        for name in OUTPUTS:
            partial = target / f".{name}.jsonl.partial"
            lines[name] = 0
            with partial.open("wb") as joined:
                for part in sorted((self._folder / name).glob("*.jsonl")):
                    text = part.read_bytes()
                    lines[name] += text.count(b"\n")
                    joined.write(text)
        for name in OUTPUTS:
            (target / f".{name}.jsonl.partial").replace(target / f"{name}.jsonl")
        return lines
