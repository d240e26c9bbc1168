"""The tool that tries a rule on the archive: what it would have raised, in a process of low priority."""

from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import Field

from buckets.errors import BucketsError
from buckets.mcp.answer import FromTime, Limit, ToolAnswer, ToTime
from buckets.mcp.rules import NEW_FILE, CheckedRule, checked
from buckets.questions.listed_alerts import AskedJob
from buckets.questions.long_questions import Question, Questions
from buckets.questions.rule_checks import RuleChecks
from buckets.rule_files.yaml_editor import rules_text

_EVERY_S = 0.2
_MOST_SWEEPS = 10


class RaisedFigures(ToolAnswer):
    """What was raised in the range of time."""

    alerts: int
    alerts_per_day: float
    held: int
    """How many alerts its policy held back."""
    events: int
    """How many events alerted."""
    keys: int
    amount: str | None
    """The sum of the measure over the events that alerted, in its unit; null where events have none."""
    confirmed_fraud: int | None = None
    """How many events of confirmed fraud there are; null, like all that follows, where none is known."""
    caught: int | None = None
    """How many of them alerted."""
    precision: float | None = None
    """The share of fraud among all events that alerted, from 0 to 1."""
    recall: float | None = None
    """The share of confirmed fraud that alerted, from 0 to 1."""
    caught_amount: str | None = None
    saved_amount: str | None = None
    """The amounts of fraud that alerted itself, or came after an alert on the same key."""


class CountedKey(ToolAnswer):
    """A key with many alerts."""

    key: dict[str, Any]
    alerts: int


class Overlap(ToolAnswer):
    """Events of the backtest beside those with recorded alerts of the rule with the same id."""

    only_old: int
    """Events with a recorded alert alone."""
    only_new: int
    """Events that alerted in the backtest alone."""
    both: int


class Day(ToolAnswer):
    """A day with alerts."""

    day: str
    """In UTC."""
    alerts: int


class TriedVariant(RaisedFigures):
    """The same with other numbers."""

    values: dict[str, str]
    """The numbers, by parameter."""
    as_written: bool
    """Whether they are those of the rule as it is written."""


class BacktestAnswer(ToolAnswer):
    """What a rule would have raised, taken as ACTIVE for all keys, as `buckets backtest --active` says it."""

    checked: CheckedRule
    from_time: str
    """The first event time of the range, in ISO 8601 and UTC."""
    to_time: str
    """The first event time after it."""
    days: float
    """How many days of events are in the range."""
    arrivals: int
    """How many events arrived in it."""
    measure: str | None
    """The field of amounts."""
    figures: RaisedFigures
    top_keys: list[CountedKey]
    """The keys with most alerts, at most 3."""
    overlap: Overlap | None
    """null where no alerts are recorded."""
    days_with_alerts: list[Day]
    """From the first on."""
    days_count: int
    """How many days have alerts in all."""
    variants: list[TriedVariant]
    """The rule with the numbers of the sweeps."""
    variants_count: int
    """How many variants there are in all."""
    has_more: bool
    """Whether days or variants are left out."""
    notes: list[str]


class BacktestTools:
    """Tries rules."""

    def __init__(self, asked: AskedJob, questions: Questions, checks: RuleChecks) -> None:
        """Try them on the archive of a job, one after the other."""
        self._asked, self._questions, self._checks = asked, questions, checks

    async def backtest_draft(
        self,
        context: Context,
        rule: Annotated[
            str, Field(max_length=100_000, description="One rule in YAML as in a rule file; or give rule_id.")
        ] = "",
        rule_id: Annotated[str, Field(description="Instead: a rule or draft of the job, as it is.")] = "",
        from_time: FromTime = "",
        to_time: ToTime = "",
        sweeps: Annotated[
            list[str],
            Field(
                max_length=_MOST_SWEEPS,
                description="Other numbers to try, as in limit=1000..10000:10, window=1h,6h or cooldown=none,1h.",
            ),
        ] = [],  # noqa: B006 - it becomes a default in a schema, and nobody changes it
        seconds_at_most: Annotated[
            int, Field(ge=1, le=3_600, description="After so many seconds it is given up, with no answer.")
        ] = 600,
        limit: Limit = 50,
    ) -> BacktestAnswer:
        """Try a rule on all that has arrived: how often it would have alerted, on which keys, and beside real alerts.

        Takes a while for much history; says how far it is, and can be cancelled. Needs `archive` in the configuration.
        """
        fields = {"begin": from_time, "end": to_time, "sweeps": sweeps}
        text, report = await anyio.to_thread.run_sync(self._read, rule, rule_id, abandon_on_cancel=True)
        asked = {"kind": "backtest", "conf": str(self._asked.conf.resolve()), "text": text, **fields}
        question = self._questions.ask(f"What {report.rule_id} would have raised", report.rule_id, "assistant", asked)
        try:
            with anyio.move_on_after(seconds_at_most):
                await _tell_until_over(context, question)
        finally:
            self._questions.cancel(question.identity)  # of one that is over, nothing
        if question.state == "cancelled":
            message = f"given up after {seconds_at_most:,} s; ask for a shorter time, or more seconds_at_most"
            raise BucketsError(message)
        if question.state == "failed":
            raise BucketsError(question.error)
        return _answer(report, question.answer(), limit)

    def _read(self, rule: str, rule_id: str) -> tuple[str, CheckedRule]:
        """Return the text of a rule, with what is said of it.

        Raises:
            BucketsError: it is not valid, or not one rule is named.
        """
        if bool(rule) == bool(rule_id):
            message = "give either rule, its text, or rule_id, a rule of the job"
            raise BucketsError(message)
        if self._asked.job.settings.archive is None:
            message = "the configuration has no `archive` of what has arrived; add one, and run `buckets archive`"
            raise BucketsError(message)
        text = rule or rules_text([self._asked.rules(NEW_FILE).rule(rule_id)])
        return text, checked(self._checks.check(text, self._asked.job, "assistant"))


async def _tell_until_over(context: Context, question: Question) -> None:
    """Tell how far a question is each time that it has come further."""
    told = -1
    while not question.is_over:
        rows, of = question.progress.get("rows", 0), question.progress.get("of", 0)
        if rows > told:
            told = rows
            words = f"{rows:,} of {max(of, rows):,} rows scored" if rows else "what has arrived is read"
            await context.report_progress(rows, max(of, rows) or None, words)
        await anyio.sleep(_EVERY_S)


def _answer(report: CheckedRule, found: dict[str, Any], limit: int) -> BacktestAnswer:
    (of_rule,), days, variants = found["rules"], found["by_day"], found["variants"]
    overlap = of_rule["overlap"]
    return BacktestAnswer.model_validate(
        found
        | {
            "checked": report,
            "from_time": found["from"],
            "to_time": found["to"],
            "figures": of_rule,
            "top_keys": of_rule["top_keys"],
            "overlap": None if overlap is None else {name: part["events"] for name, part in overlap.items()},
            "days_with_alerts": days[:limit],
            "days_count": len(days),
            "variants": variants[:limit],
            "variants_count": len(variants),
            "has_more": max(len(days), len(variants)) > limit,
        }
    )
