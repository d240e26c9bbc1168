"""Results into JSON lines: a file for each output and batch while the query runs, joined in the end."""

from pathlib import Path

from buckets.files import partial_of, write_whole
from buckets.outputs import columns
from buckets.outputs.json_lines import JsonLines
from buckets.spark.scored_batch import ScoredBatch

OUTPUTS = (
    columns.EVALUATIONS,
    columns.ALERTS,
    columns.SHADOW_ALERTS,
    columns.HELD_ALERTS,
    columns.LATE_EVENTS,
    columns.COLLISIONS,
    columns.DUPLICATES,
    columns.DEAD_LETTERS,
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
            if batch.has(name):
                part = self._folder / name / f"{batch.account.batch_id:09d}.jsonl"
                write_whole(part, "".join(f"{line}\n" for line in writer.lines(name, batch.table(name))))

    def publish(self, target: Path) -> dict[str, int]:
        """Join the parts of each output into one file under `target`, replacing what is there.

        Returns:
            How many lines each output has.
        """
        target.mkdir(parents=True, exist_ok=True)
        lines: dict[str, int] = {}
        for name in OUTPUTS:
            lines[name] = 0
            with partial_of(target / f"{name}.jsonl").open("wb") as joined:
                for part in sorted((self._folder / name).glob("*.jsonl")):
                    text = part.read_bytes()
                    lines[name] += text.count(b"\n")
                    joined.write(text)
        for name in OUTPUTS:
            whole = target / f"{name}.jsonl"
            partial_of(whole).replace(whole)
        return lines
