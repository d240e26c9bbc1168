"""The command `buckets replay`: the archive scored once more, compared with what was recorded."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.status import Status

from buckets.archive.history import History
from buckets.cli.console import Terminal, TextTable, echo_report
from buckets.cli.options import ArchivedConf, AsJson, From, Processes, To, processes_for, range_ms
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.history.replay.differences import Difference
from buckets.history.replay.replay import Replayed, Wanted, replay_history
from buckets.moment import iso_text, moment_ms, time_text

_KINDS = {
    "recorded_only": "recorded, did not come out again",
    "replayed_only": "came out, is not recorded",
    "different": "came out with other fields",
}


class Cuts(StrEnum):
    """How the stream is cut."""

    AUTO = "auto"
    RECORDED = "recorded"
    JOINED = "joined"


def replay_job(
    conf: ArchivedConf,
    begin: From = None,
    end: To = None,
    evaluations: Annotated[
        bool, typer.Option("--evaluations", help="Compare evaluations too, where the job writes them.")
    ] = False,
    cuts: Annotated[
        Cuts, typer.Option(help="Score batch by batch as recorded, or small batches joined to larger ones.")
    ] = Cuts.AUTO,
    processes: Processes = None,
    show: Annotated[int, typer.Option(min=0, help="How many differences are shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Score again what has arrived, and compare with the alerts that are recorded.

    Every batch is scored by the rules, lists and settings that it was scored by
    then, without Spark, and all fields of alerts, shadow alerts and held alerts
    are compared. --from and --to choose the alerts that are compared, by the
    time of their events; scoring always begins with the first batch.

    Joined batches give the same rows, but for those that say warm: false where
    idle keys were evicted. `auto` joins many small batches, and scores again
    batch by batch if anything differs.

    The exit code is 0 if all is equal, and 1 if something differs.

    \b
    Examples:
      buckets replay conf/job.yaml
      buckets replay conf/job.yaml --from 2026-01-01 --to 2026-02-01
      buckets replay conf/job.yaml --evaluations --cuts recorded --json
    """  # noqa: D301 - click needs the backspace itself
    times = range_ms(begin, end)
    job = load_job(conf)
    console = Terminal(stderr=True)
    with console.status("Reading what has arrived…") as status:
        history = History.open(job, lambda rows: status.update("Archiving what has arrived…"))
        rows = history.archive.end()
        wanted = Wanted(times, evaluations, cuts.value, processes_for(rows, processes))
        found = replay_history(history, wanted, lambda so_far: _tell(status, so_far, rows), console.print)
    if as_json:
        echo_report(_as_json(found))
    else:
        _show(Terminal(), found, show, job.settings.output.kind)
    if not found.is_equal:
        count = found.counts.total()
        message = f"{count:,} {'row is not as it is' if count == 1 else 'rows are not as they are'} recorded"
        raise BucketsError(message)


def _tell(status: Status, found: Replayed, rows: int) -> None:
    status.update(f"{found.events:,} of {rows:,} arrivals scored, {found.counts.total():,} differences so far")


def _show(console: Terminal, found: Replayed, show: int, output: str) -> None:
    numbers = ("Recorded", "Differences")
    table = TextTable("Compared", ("Output", *numbers), numbers)
    for output, rows in found.compared.items():
        table.add_row(output, f"{rows:,}", f"{found.of_output[output]:,}")
    console.print(table)
    for each in found.differences[:show]:
        console.print(_line(each), soft_wrap=True)
    more = found.of_output.total() - min(show, len(found.differences))
    if more:
        console.print(f"… and {more:,} more; --show says how many are shown")
    lines = [_scored(found)]
    if found.eviction:
        lines.append(
            f"{found.eviction:,} of the differences are of windows that were not complete (warm: false), or follow "
            "from those: a replay with joined batches, or of a job with a backfill or an import, evicts idle keys at "
            "another moment"
        )
    if output == "kafka" and found.counts["replayed_only"]:
        lines.append("an alert that came out and is not recorded may be one that `buckets audit` has not read yet")
    if found.not_compared is not None:
        lines.append(f"batches up to {found.not_compared:,} are written, and not all of them are archived")
    lines.append("equal: all that is recorded came out again, and nothing else" if found.is_equal else "not equal")
    for line in lines:
        console.say(line)


def _scored(found: Replayed) -> str:
    cut = "batch by batch" if found.cut_as == "recorded" else "small batches joined"
    return f"{found.events:,} arrivals of {found.batches:,} batches were scored, {cut}"


def _line(each: Difference) -> str:
    """A difference as a few lines."""
    row = each.row
    time = time_text(moment_ms(row["event_time"]))
    about = f"alert {row['alert_id']}" if "alert_id" in row else "evaluation"
    text = f"{each.output}: {about} of rule {row['rule_id']} at event {row['event_id']} ({time}): {_KINDS[each.kind]}"
    for name in each.fields:
        assert each.recorded is not None
        assert each.replayed is not None
        text += f"\n  {name}: recorded {_shown(each.recorded[name])}, came out {_shown(each.replayed[name])}"
    return text


def _as_json(found: Replayed) -> dict[str, Any]:
    return {
        "equal": found.is_equal,
        "cuts": found.cut_as,
        "batches": found.batches,
        "arrivals": found.events,
        "last_batch": found.last_batch,
        "not_archived_until": found.not_compared,
        "compared": dict(found.compared),
        "differences": dict(found.counts),
        "evicted_at_another_moment": found.eviction,
        "rows": [_difference_json(each) for each in found.differences],
    }


def _difference_json(each: Difference) -> dict[str, Any]:
    sides = {"recorded": each.recorded, "replayed": each.replayed}
    return {"output": each.output, "kind": each.kind, "fields": each.fields} | sides


def _shown(value: Any) -> Any:
    """Return a value of a row as text shows it."""
    if isinstance(value, datetime):
        return iso_text(moment_ms(value))
    return format(value, "f") if isinstance(value, Decimal) else value
