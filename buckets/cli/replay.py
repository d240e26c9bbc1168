"""The command `buckets replay`: the archive scored once more, compared with what was recorded."""

from typing import Annotated, Any

import typer

from buckets.archive.history import History
from buckets.cli.console import Terminal, TextTable, echo_report
from buckets.cli.options import ArchivedConf, AsJson, From, HistoryMaster, To, range_ms, scoring_of
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.history.replay.replay import CutChoice, replay_history
from buckets.history.replay.replayed import Replayed, conclusion, difference_words


def replay(
    conf: ArchivedConf,
    begin: From = None,
    end: To = None,
    evaluations: Annotated[
        bool, typer.Option("--evaluations", help="Also compare evaluations, if the job writes them.")
    ] = False,
    cuts: Annotated[
        CutChoice, typer.Option(help="Score the recorded batches as they were, or join small ones.")
    ] = "auto",
    master: HistoryMaster = None,
    show: Annotated[int, typer.Option(min=0, help="How many differences to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Rescore everything that has arrived, and compare with the recorded alerts.

    Every batch is scored with the rules, lists and settings it had then,
    in this process or with --master, and all fields of alerts, shadow alerts and held alerts are
    compared. --from and --to choose the alerts to compare, by event time;
    scoring always begins with the first batch.

    Joined batches give the same rows, except those with warm: false where
    idle keys were evicted. `auto` joins many small batches, and rescores
    batch by batch if anything differs.

    The exit code is 0 if all is equal, and 1 if something differs.

    Examples:
      buckets replay conf/job.yaml
      buckets replay conf/job.yaml --from 2026-01-01 --to 2026-02-01
      buckets replay conf/job.yaml --evaluations --cuts recorded --json
      buckets replay conf/job.yaml --master spark://HOST:7077
    """
    times = range_ms(begin, end)
    job = load_job(conf)
    console = Terminal(stderr=True)
    with console.status("Reading what has arrived…") as status:
        history = History.open(job)
        rows = history.archive.end()

        def on_scored(so_far: Replayed) -> None:
            scored, differences = f"{so_far.events:,} of {rows:,} arrivals scored", so_far.counts.total()
            status.update(f"{scored}, {differences:,} differences so far")

        score = scoring_of(job, master, rows, console.print)
        replayed = replay_history(history, times, evaluations, cuts, on_scored, console.print, score)
    if as_json:
        echo_report(_as_json(replayed))
    else:
        show_replayed(Terminal(), replayed, show, job.settings.output.kind)
    if not replayed.is_equal:
        count = replayed.counts.total()
        message = f"{count:,} {'row is not as it is' if count == 1 else 'rows are not as they are'} recorded"
        raise BucketsError(message)


def show_replayed(console: Terminal, replayed: Replayed, show: int, output_kind: str) -> None:
    """Print what a replay of a job with a kind of output has compared, with the first differences."""
    rows = ((output, f"{rows:,}", f"{replayed.of_output[output]:,}") for output, rows in replayed.compared.items())
    console.print(TextTable("Compared", ("Output", ">Recorded", ">Differences"), rows))
    for difference in replayed.differences[:show]:
        console.say(difference_words(difference))
    more = replayed.of_output.total() - min(show, len(replayed.differences))
    if more:
        console.print(f"… and {more:,} more; --show says how many are shown")
    for line in conclusion(replayed, output_kind):
        console.say(line)


def _as_json(replayed: Replayed) -> dict[str, Any]:
    return {
        "equal": replayed.is_equal,
        "cuts": replayed.cut_as,
        "batches": replayed.batches,
        "arrivals": replayed.events,
        "last_batch": replayed.last_batch,
        "not_archived_until": replayed.not_archived_until,
        "compared": dict(replayed.compared),
        "differences": dict(replayed.counts),
        "evicted_at_another_moment": replayed.eviction,
        "rows": [vars(difference) for difference in replayed.differences],
    }
