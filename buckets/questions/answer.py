"""Answers a question in a process of its own: `python -m buckets.questions.answer FOLDER`.

It reads `asked.json` of the folder, says on standard output how far it is, a JSON object a line, and writes
`answer.json`. When its standard input closes, whoever has asked has ended, and so does it.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from buckets.archive.history import History
from buckets.changes.typed_rule import read_rule
from buckets.config.job import Job, kept_results, load_job
from buckets.errors import BucketsError
from buckets.exit_codes import FAILED
from buckets.history.backtest.backtest import Backtest
from buckets.history.backtest.pieces import archive_pieces
from buckets.history.backtest.report_json import report_json
from buckets.history.backtest.sweep import parse_sweeps
from buckets.history.backtest.variants import swept_rules
from buckets.history.replay.replay import ReplayRequest, replay_history
from buckets.history.replay.replayed import Replayed
from buckets.history.replay.words import conclusion, difference_words
from buckets.lists.lists import NO_LISTS
from buckets.moment import TimeRange
from buckets.outputs.rule_alerts import has_alerts
from buckets.questions.named_moment import named_times
from buckets.rules.policy import WHOLE_SHARE
from buckets.verdicts.confirmed import confirmed_fraud

_DIFFERENCES = 50


def main() -> None:
    """Answer the question in the folder that is named."""
    threading.Thread(target=_end_with_who_asks, daemon=True).start()
    folder = Path(sys.argv[1])
    try:
        found = answer(json.loads((folder / "asked.json").read_text(encoding="utf-8")))
    except BucketsError as error:
        _say({"error": error.message})
        sys.exit(FAILED)
    partial = folder / "answer.json.partial"
    partial.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    partial.replace(folder / "answer.json")


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question about a job: a replay, or else a backtest.

    Raises:
        BucketsError: it cannot be asked so.
    """
    job = load_job(Path(asked["conf"]))
    times = named_times(asked["begin"], asked["end"])
    return _replay(job, times) if asked["kind"] == "replay" else _backtest(job, times, asked)


def _replay(job: Job, times: TimeRange) -> dict[str, Any]:
    """Return what a replay of the archive finds, as `buckets replay` says it."""
    history = History.open(job)
    of = history.archive.end()

    def on_scored(so_far: Replayed) -> None:
        _say({"progress": {"rows": so_far.events, "of": of}})

    replayed = replay_history(history, ReplayRequest(times), on_scored)
    return {
        "is_equal": replayed.is_equal,
        "arrivals": replayed.events,
        "compared": [
            {"output": output, "rows": rows, "differences": replayed.of_output[output]}
            for output, rows in replayed.compared.items()
        ],
        "differences": [difference_words(each) for each in replayed.differences[:_DIFFERENCES]],
        "notes": conclusion(replayed, job.settings.output.kind),
    }


def _backtest(job: Job, times: TimeRange, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what a rule would have raised on the archive of a job, as `buckets backtest --active` says it."""
    rule = read_rule(asked["text"], job).rule.model_copy(update={"state": "ACTIVE", "rollout": WHOLE_SHARE})
    folder = kept_results(job)
    recorded = folder if folder is not None and has_alerts(folder) else None
    backtest = Backtest(
        rules=(rule,),
        schema=job.event_schema,
        engine=job.settings.engine,
        lists=NO_LISTS,
        span=times,
        history_ms=None,
        measure=next(iter(job.event_schema.measures), None),
        confirmed=None if recorded is None else _confirmed(job),
        swept=swept_rules(parse_sweeps(asked["sweeps"], (rule,)), (rule,)),
        recorded=recorded,
        samples=3,
    )
    backtest.check()
    history = History.open(job)
    of = history.archive.end()
    pieces = archive_pieces(history, backtest.scoring, backtest.span[1])
    report = backtest.run(pieces, lambda rows, alerts: _say({"progress": {"rows": rows, "of": of}}), processes=1)
    return report_json(report)


def _confirmed(job: Job) -> dict[str, Any] | None:
    """Return what people have found to be fraud; None where nothing is, so that no share of it is shown."""
    return {event_id: fraud.amount for event_id, fraud in confirmed_fraud(job).items()} or None


def _say(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _end_with_who_asks() -> None:
    while os.read(0, 1):
        pass
    os._exit(FAILED)


if __name__ == "__main__":
    main()
