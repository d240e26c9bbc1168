"""The tools that try a rule on the archive, in a process of low priority, and save it as a draft."""

from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import Field

from buckets.changes.origin import JobRules
from buckets.changes.typed_rule import read_rule
from buckets.errors import BucketsError
from buckets.mcp.tools import NEW_FILE, Answer, FromTime, Limit, ToTime
from buckets.printable import one_line, quoted
from buckets.questions.listed_alerts import AskedJob
from buckets.questions.long_questions import Question, Questions
from buckets.questions.rule_checks import RuleChecks, RuleReport
from buckets.rule_files.differences import difference
from buckets.rule_files.yaml_editor import rules_text
from buckets.rules.change import RuleChange, check_reason
from buckets.rules.revision import in_one_form
from buckets.rules.rule import Rule

_EVERY_S = 0.2
_MOST_SWEEPS = 10
_LONGEST_NAME = 50
_MOST_CHARACTERS = 100_000


class DraftTools:
    """The tools that take a rule; drafts are saved under the name of a person and their assistant."""

    def __init__(self, asked: AskedJob, questions: Questions, person: str) -> None:
        """Try rules on the archive of a job, one at a time, and save a person's drafts beside its rules."""
        self._asked, self._questions, self._person = asked, questions, person
        self._checks = RuleChecks(is_replaced=False)

    async def backtest_draft(
        self,
        context: Context,
        rule: Annotated[
            str, Field(max_length=_MOST_CHARACTERS, description="One rule in YAML as in a rule file; or give rule_id.")
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
    ) -> Answer:
        """Try a rule on all that has arrived: how often it would have alerted, on which keys, and beside real alerts.

        The answer is the report of `buckets backtest --active --json`, the rule taken as ACTIVE for all keys: its
        figures and top keys in rules, overlap with recorded alerts of the same id (only_old, only_new, both; null where
        none are recorded), by_day and variants, bounded by limit, with their counts. Shares of fraud are there where
        some is confirmed. checked has what checks and tests say of the rule.

        Takes a while for much history; says how far it is, and can be cancelled. Needs `archive` in the configuration.
        """
        fields = {"begin": from_time, "end": to_time, "sweeps": sweeps}
        text, checked = await anyio.to_thread.run_sync(self._read, rule, rule_id, abandon_on_cancel=True)
        rule_id = checked["rule_id"]
        asked = {"kind": "backtest", "conf": str(self._asked.conf.resolve()), "text": text, **fields}
        question = self._questions.ask(f"What {rule_id} would have raised", rule_id, "assistant", asked)
        try:
            with anyio.move_on_after(seconds_at_most):
                await _tell_until_over(context, question)
        finally:
            self._questions.cancel(question.identity)  # no effect on one that has ended
        if question.state == "cancelled":
            message = f"given up after {seconds_at_most:,} s; ask for a shorter time, or more seconds_at_most"
            raise BucketsError(message)
        if question.state == "failed":
            raise BucketsError(question.error)
        report = question.answer()
        bounded = {name: report[name][:limit] for name in ("by_day", "variants")}
        counts = {f"{name}_count": len(report[name]) for name in bounded}
        return report | bounded | counts | {"checked": checked, "has_more": max(counts.values()) > limit}

    def _read(self, rule: str, rule_id: str) -> tuple[str, Answer]:
        """Return the text of a rule, with the results of checks and tests."""
        if bool(rule) == bool(rule_id):
            message = "give either rule, its text, or rule_id, a rule of the job"
            raise BucketsError(message)
        if self._asked.job.settings.archive is None:
            message = "the configuration has no `archive` of what has arrived; add one, and run `buckets archive`"
            raise BucketsError(message)
        text = rule or rules_text([self._asked.rules(NEW_FILE).rule(rule_id)])
        return text, _checked(self._checks.check(text, self._asked.job, "assistant"))

    def propose_draft(
        self,
        rule: Annotated[
            str,
            Field(
                min_length=1,
                max_length=_MOST_CHARACTERS,
                description="One rule in YAML as in a rule file: `rules:` with one entry, and `tests:` beside it if "
                "there are some. `rules` with as_written shows how rules are written.",
            ),
        ],
        reason: Annotated[str, Field(description="Why; whoever releases the rule reads it.", min_length=1)],
        context: Context,
    ) -> Answer:
        """Save a rule as a DRAFT where the job reads its rules. It is not evaluated; only a person can release it.

        The rule_id must be new, or that of a draft that the same assistant has proposed. A rule with findings of the
        level error, or tests that fail, is refused. Whatever state the text names, a DRAFT is saved. The answer says
        what checks and tests say of it, where it is saved (place), what differs from the draft before, whether anything
        was written (is_changed), and what a person does to release it (next_step).
        """
        check_reason(reason)
        job, rules = self._asked.job, self._asked.rules(NEW_FILE)
        draft, author = rules.draft(read_rule(rule, job).rules[0]), self._author(context)
        _check_own(rules, draft, author)
        report = self._checks.check(rule, job, "assistant")
        _check_sound(report)
        revision = rules.change([RuleChange(change="put", rule=draft, author=author, reason=reason)])
        made = next(iter(revision.made), None)
        before = None if made is None or made.before is None else in_one_form(made.before, job.event_schema)
        conf = quoted(str(self._asked.conf))
        return {
            "checked": _checked(report),
            "place": rules.name,
            "author": author,
            "difference": "" if made is None else difference(before, made.after),
            "is_changed": made is not None,
            "next_step": f"`buckets rules promote {quoted(draft.rule_id)} --conf {conf}`, or its page in the console",
        }

    def _author(self, context: Context) -> str:
        """Return the person and the assistant by its own name."""
        client: Any = context.session.client_params
        name = "" if client is None else one_line(client.client_info.name.strip())[:_LONGEST_NAME]
        return f"{self._person or 'somebody'} via {name or 'an assistant'}"


async def _tell_until_over(context: Context, question: Question) -> None:
    """Report the progress of a question whenever it advances."""
    told = -1
    while not question.is_over:
        rows, of = question.progress.get("rows", 0), question.progress.get("of", 0)
        if rows > told:
            told = rows
            words = f"{rows:,} of {max(of, rows):,} rows scored" if rows else "what has arrived is read"
            await context.report_progress(rows, max(of, rows) or None, words)
        await anyio.sleep(_EVERY_S)


def _checked(report: RuleReport) -> Answer:
    return {
        "rule_id": report.rule.rule_id,
        "sentence": report.rule.sentence(),
        "findings": report.findings,
        "tests": [
            {"name": test.name, "status": test.status, "failures": [failure.text for failure in test.failures]}
            for test in report.outcomes
        ],
    }


def _check_own(rules: JobRules, draft: Rule, author: str) -> None:
    kept = next((each for each in rules.kept if each.rule.rule_id == draft.rule_id), None)
    if kept is not None and kept.author != author:
        message = (
            f"there is a draft {draft.rule_id!r} by {kept.author or 'somebody'}, which is left alone; give yours a "
            "rule_id of its own"
        )
        raise BucketsError(message)


def _check_sound(report: RuleReport) -> None:
    error = next((finding for finding in report.findings if finding["level"] == "error"), None)
    if error is not None:
        message = f"line {error['line']}: {error['message']} ({error['code']}); nothing has been saved"
        raise BucketsError(message)
    failed = next((test for test in report.outcomes if test.status == "failed"), None)
    if failed is not None:
        message = f"test {failed.name!r} fails: {failed.failures[0].text}; nothing has been saved"
        raise BucketsError(message)
