"""Results into JSON lines: a file for each output and batch while the query runs, joined in the end."""

from pathlib import Path

import pyarrow as pa

from buckets import outputs, payload
from buckets.json_lines import JsonLines
from buckets.ledger import write_whole
from buckets.results import one_letter_an_event
from buckets.shard import evaluation_rows
from buckets.spark.query import ScoredBatch

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

    def __init__(self, folder: Path) -> None:
        """Write parts under `folder`."""
        self._folder = folder

    @property
    def on_driver(self) -> bool:
        """It writes on the driver."""
        return True

    def write(self, batch: ScoredBatch) -> None:
        """Write the parts of a batch, over those of an earlier try."""
        writer = JsonLines(batch.rule_set, batch.terms.event_schema)
        for name in OUTPUTS:
            if batch.rows.get(name):
                tables = [_decode(name, packed, batch) for packed in batch.payloads[name]]
                table = pa.concat_tables(tables, promote_options="permissive")
                lines = writer.lines(name, one_letter_an_event(table) if name == outputs.DEAD_LETTERS else table)
                part = self._folder / name / f"{batch.account.batch_id:09d}.jsonl"
                write_whole(part, "".join(f"{line}\n" for line in lines))

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


def _decode(name: str, packed: bytes, batch: ScoredBatch) -> pa.Table:
    if name == outputs.EVALUATIONS:
        return evaluation_rows(packed, batch.rule_set, batch.terms.event_schema, batch.terms.engine)
    return payload.unpack(packed).replace_schema_metadata()
