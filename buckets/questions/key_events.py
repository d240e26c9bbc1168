"""The latest events of a key in a job's archive, and the results of rules at the last one.

Also explains single alerts, and answers long questions in a separate process.
"""

import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from buckets.archive.arrived_rows import ARRIVAL, FAULT
from buckets.archive.history import History
from buckets.changes.typed_rule import read_rule
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, kept_results, load_job
from buckets.delta.whole_table import in_ms, is_in, quoted_column
from buckets.errors import BucketsError
from buckets.exit_codes import FAILED
from buckets.history.backtest.backtest import Backtest, archive_pieces
from buckets.history.backtest.report import report_json
from buckets.history.backtest.sweep import parse_sweeps, swept_rules
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.maker import Explainer
from buckets.history.replay.replay import replay_history
from buckets.history.replay.replayed import Replayed, conclusion, difference_words
from buckets.history.scoring import score_archive
from buckets.json_text import write_json
from buckets.lists.index import NO_LISTS
from buckets.moment import TimeRange
from buckets.outputs.recorded_outputs import full_alert_id, with_alerts
from buckets.questions.long_questions import named_times
from buckets.rules.rule import WHOLE_SHARE, Rule
from buckets.verdicts.confirmed import confirmed_fraud


def key_test(key: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """Return an SQL test for events of a key, whose values are given as text, with the kinds of their fields."""
    return " and ".join(_test(field, value, kinds) for field, value in key.items())


def key_events(history: History, test: str, most: int) -> list[dict[str, Any]]:
    """Return the latest events of a key, the latest first."""
    schema = history.job.event_schema
    time = quoted_column(schema.event_time.field)
    where = f"{test} and {quoted_column(FAULT)} is null"
    sql = f"select * from archive where {where} order by {time} desc, {quoted_column(ARRIVAL)} desc limit {most}"
    names = schema.other_fields
    return [
        {
            "event_id": str(row[schema.event_id]),
            "time_ms": row[schema.event_time.field],
            **{name: row.get(name) for name in schema.measures},
            "fields": {name: row[name] for name in names if row.get(name) is not None},
        }
        for row in in_ms(history.archive.query(sql)).to_pylist()
    ]


def rules_of_key(rules: list[Rule], fields: Iterable[str]) -> list[Rule]:
    """Return the rules over events that group by the fields of a key, and possibly others."""
    return [rule for rule in rules if rule.on == "events" and set(rule.group_by).issuperset(fields)]


def nearness(explainer: Explainer, event: Mapping[str, Any], rules: list[Rule]) -> list[dict[str, Any]]:
    """Return the results of rules at an event of `key_events`, and how near each was to firing."""
    found = []
    for rule in rules:
        explanation = explainer.event(event["event_id"], rule.rule_id, event["time_ms"])
        feature = next(iter(explanation.features), None)
        tests = () if explanation.condition is None else explanation.condition.tests()
        words = "; ".join(test.text for test in tests) or "; ".join(reason.sentence for reason in explanation.reasons)
        start_ms, end_ms = (None, None) if feature is None else (feature.start_ms, feature.end_ms)
        times = {"start_ms": start_ms, "end_ms": end_ms}
        found.append({"rule_id": rule.rule_id, "outcome": explanation.outcome, "words": words, **times})
    return found


def _test(field: str, value: str, kinds: Mapping[str, str]) -> str:
    if field not in kinds:
        message = f"field: events have no attribute {field!r}; there are {', '.join(kinds)}"
        raise BucketsError(message)
    if kinds[field] == "long" and not (value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 20):
        message = f"value: {field} is a whole number, and {value!r} is none"
        raise BucketsError(message)
    if kinds[field] == "boolean":
        if value not in ("true", "false"):
            message = f"value: {field} is true or false, not {value!r}"
            raise BucketsError(message)
        return f"{quoted_column(field)} = {value}"
    return is_in(field, [int(value) if kinds[field] == "long" else value])


def explainer(history: History, most_events: int | None) -> Explainer:
    """Return an explainer for a history, which shows at most `most_events` events of a window; None for all."""
    job = history.job
    past = Past.of(history.archive, history.recorded, kept_results(job), RuleVersions(job.checkpoint))
    return Explainer(past, most_events)


def explained_alert(history: History, alert_id: str, most_events: int | None) -> Explanation:
    """Explain an alert by its id, or by a unique beginning of it."""
    results = kept_results(history.job)
    whole_id = alert_id if results is None else full_alert_id(results, alert_id)
    return explainer(history, most_events).alert(whole_id)


_DIFFERENCES = 50


def main() -> None:
    """Answer the question in the folder given as argument."""
    threading.Thread(target=_end_with_who_asks, daemon=True).start()
    folder = Path(sys.argv[1])
    try:
        found = answer(json.loads((folder / "asked.json").read_text(encoding="utf-8")))
    except BucketsError as error:
        _say({"error": error.message})
        sys.exit(FAILED)
    partial = folder / "answer.json.partial"
    partial.write_text(write_json(found), encoding="utf-8")
    partial.replace(folder / "answer.json")


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer a question about a job: a replay or a backtest."""
    job = load_job(Path(asked["conf"]))
    times = named_times(asked["begin"], asked["end"])
    return _replay(job, times) if asked["kind"] == "replay" else _backtest(job, times, asked)


def _replay(job: Job, times: TimeRange) -> dict[str, Any]:
    history = History.open(job)
    of = history.archive.end()

    def on_scored(so_far: Replayed) -> None:
        _say({"progress": {"rows": so_far.events, "of": of}})

    replayed = replay_history(history, times, on_piece=on_scored)
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
    rule = read_rule(asked["text"], job).rules[0].model_copy(update={"state": "ACTIVE", "rollout": WHOLE_SHARE})
    recorded = with_alerts(kept_results(job))
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
    found = score_archive(archive_pieces(history, backtest), "alerts", backtest.found_in)
    report = backtest.report(found, lambda rows, alerts: _say({"progress": {"rows": rows, "of": of}}))
    return report_json(report)


def _confirmed(job: Job) -> dict[str, Any] | None:
    """Return the confirmed fraud; None without any, so that no share of it is shown."""
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
