"""The tools that show rules as a job reads them, and what has changed in them.

The tool that proposes a rule as a draft.
"""

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from buckets.changes.drafts import draft_of
from buckets.changes.origin import JobRules, listed_rule
from buckets.changes.typed_rule import read_rule
from buckets.changes.versions import changes_of, check_known_rules, read_completions, with_differences
from buckets.config.job import kept_results
from buckets.errors import BucketsError
from buckets.mcp.answer import Limit, Offset, ToolAnswer, time_text
from buckets.printable import one_line, quoted
from buckets.questions.listed_alerts import AskedJob
from buckets.questions.rule_checks import RuleChecks, RuleReport
from buckets.rule_files.differences import difference
from buckets.rules.change import RuleChange, check_reason
from buckets.rules.release import stage
from buckets.rules.revision import in_one_form
from buckets.rules.rule import Rule

NEW_FILE = "assistant.yaml"
"""In a folder of rules, the file for drafts of assistants."""
_LONGEST_NAME = 50
RuleText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100_000,
        description="One rule in YAML as in a rule file: `rules:` with one entry, and `tests:` beside it if there are "
        "some. `rules` with as_written shows how rules are written.",
    ),
]


class LintFinding(ToolAnswer):
    """Something that is wrong with a rule that is valid, as `buckets rules check` finds it."""

    code: str
    """By which `buckets rules check --explain` says more of it."""
    level: str
    """error: the rule is useless; warning: hardly what was meant; note: worth a look."""
    line: int | None
    """Of the text, from 1."""
    message: str


class RuleTestResult(ToolAnswer):
    """What became of a test beside the rule."""

    name: str
    status: str
    """passed, failed or skipped."""
    failures: list[str]
    """What came out otherwise than expected."""


class CheckedRule(ToolAnswer):
    """What the checks and tests say of a rule."""

    rule_id: str
    sentence: str
    """The rule in English."""
    findings: list[LintFinding]
    tests: list[RuleTestResult]


class DraftAnswer(ToolAnswer):
    """A draft that is saved."""

    checked: CheckedRule
    place: str
    """Where it is saved."""
    author: str
    """Who it is said to be by."""
    difference: str
    """What differs from the draft that was there before; of a new one, what it says."""
    is_changed: bool
    """Whether anything has been written; false where the same draft was there."""
    next_step: str
    """What a person does to release it."""


def checked(report: RuleReport) -> CheckedRule:
    """Return what the checks and tests say of a rule, as assistants are answered."""
    return CheckedRule(
        rule_id=report.rule.rule_id,
        sentence=report.rule.sentence(),
        findings=[LintFinding.model_validate(finding) for finding in report.findings],
        tests=[
            RuleTestResult(
                name=outcome.name, status=outcome.status, failures=[failure.text for failure in outcome.failures]
            )
            for outcome in report.outcomes
        ],
    )


class DraftTools:
    """Saves drafts, under the name of a person and their assistant."""

    def __init__(self, asked: AskedJob, person: str, checks: RuleChecks) -> None:
        """Save those of a person beside the rules of a job."""
        self._asked, self._person, self._checks = asked, person, checks

    def propose_draft(
        self,
        rule: RuleText,
        reason: Annotated[str, Field(description="Why; whoever releases the rule reads it.", min_length=1)],
        context: Context,
    ) -> DraftAnswer:
        """Save a rule as a DRAFT where the job reads its rules. It is not evaluated; only a person can release it.

        The rule_id must be new, or that of a draft that the same assistant has proposed. A rule with findings of the
        level error, or tests that fail, is refused. Whatever state the text names, a DRAFT is saved.
        """
        check_reason(reason)
        job, rules = self._asked.job, self._asked.rules(NEW_FILE)
        draft, author = draft_of(read_rule(rule, job), rules), self._author(context)
        _check_own(rules, draft, author)
        report = checked(self._checks.check(rule, job, "assistant"))
        _check_sound(report)
        revision = rules.change([RuleChange(change="put", rule=draft, author=author, reason=reason)])
        made = next(iter(revision.made), None)
        before = None if made is None or made.before is None else in_one_form(made.before, job.event_schema)
        conf = quoted(str(self._asked.conf))
        return DraftAnswer(
            checked=report,
            place=rules.name,
            author=author,
            difference="" if made is None else difference(before, made.after),
            is_changed=made is not None,
            next_step=f"`buckets rules promote {quoted(draft.rule_id)} --conf {conf}`, or its page in the console",
        )

    def _author(self, context: Context) -> str:
        """Return the person and, as it calls itself, the assistant."""
        client: Any = context.session.client_params
        name = "" if client is None else one_line(client.client_info.name.strip())[:_LONGEST_NAME]
        return f"{self._person or 'somebody'} via {name or 'an assistant'}"


def _check_own(rules: JobRules, draft: Rule, author: str) -> None:
    """Check that a draft replaces none of another author.

    Raises:
        BucketsError: it does.
    """
    kept = next((each for each in rules.kept if each.rule.rule_id == draft.rule_id), None)
    if kept is not None and kept.author != author:
        message = (
            f"there is a draft {draft.rule_id!r} by {kept.author or 'somebody'}, which is left alone; give yours a "
            "rule_id of its own"
        )
        raise BucketsError(message)


def _check_sound(report: CheckedRule) -> None:
    """Check that a draft may be of use.

    Raises:
        BucketsError: a finding is an error, or a test fails.
    """
    errors = [finding for finding in report.findings if finding.level == "error"]
    if errors:
        message = f"line {errors[0].line}: {errors[0].message} ({errors[0].code}); nothing has been saved"
        raise BucketsError(message)
    failed = [test for test in report.tests if test.status == "failed"]
    if failed:
        message = f"test {failed[0].name!r} fails: {failed[0].failures[0]}; nothing has been saved"
        raise BucketsError(message)


RuleId = Annotated[str, Field(description="Only this rule; empty for all.")]


class RuleRow(ToolAnswer):
    """A rule where the job reads its rules."""

    rule_id: str
    version: int
    state: str
    """DRAFT, SHADOW (on trial), ACTIVE or PAUSE."""
    stage: str
    """The state, and the share of keys for which it alerts where that is not all."""
    sentence: str
    """The rule in English."""
    policy: str
    """Its policy in English, such as a cooldown; empty where it has none."""
    author: str
    """Who changed it last; empty where that is not known."""
    reason: str
    """Why, in the words of the author."""
    changed_at: str | None
    """When, in ISO 8601 and UTC."""
    completeness: str
    """Since when its windows are complete, or why that cannot be said."""
    rule: dict[str, Any] | None
    """The rule as it is written, where it was asked for."""


class RulesAnswer(ToolAnswer):
    """Rules of a job."""

    place: str
    """Where the job reads them."""
    rules: list[RuleRow]
    count: int
    """How many there are in all."""
    has_more: bool
    """Whether there are more after these."""


class ChangeRow(ToolAnswer):
    """A change of the rules."""

    ruleset_version: int
    """Of all rules together, from this change on."""
    rule_id: str | None
    """null where it is about all rules."""
    rule_version: int | None
    change: str
    """What was done."""
    difference: str
    """What differs, in words."""
    author: str | None
    reason: str | None
    asked_at: str | None
    """In ISO 8601 and UTC."""
    in_force_at: str | None
    """In ISO 8601 and UTC."""
    first_batch: int | None
    """The first batch with it."""
    place: str | None
    """Where the change came from."""


class HistoryAnswer(ToolAnswer):
    """Changes of rules, newest first."""

    changes: list[ChangeRow]
    count: int
    """How many there are in all."""
    has_more: bool
    """Whether there are older ones after these."""


class RuleTools:
    """Shows rules."""

    def __init__(self, asked: AskedJob) -> None:
        """Show those of a job."""
        self._asked = asked

    def rules(
        self,
        rule_id: RuleId = "",
        as_written: Annotated[bool, Field(description="Whether each rule comes as it is written too.")] = False,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> RulesAnswer:
        """List the rules of the job, in English, with who changed each last and since when it is complete."""
        rules = self._asked.rules(NEW_FILE)
        if rule_id:
            rules.rule(rule_id)
        kept = [each for each in rules.kept if rule_id in ("", each.rule.rule_id)]
        shown = kept[offset : offset + limit]
        completions = read_completions(self._asked.job, [each.rule for each in shown])
        rows = [(each.rule, listed_rule(each, completions[each.rule.rule_id])) for each in shown]
        return RulesAnswer(
            place=rules.name,
            rules=[
                RuleRow.model_validate(row | {"stage": stage(rule), "rule": row["rule"] if as_written else None})
                for rule, row in rows
            ],
            count=len(kept),
            has_more=offset + limit < len(kept),
        )

    def rule_history(self, rule_id: RuleId = "", limit: Limit = 20, offset: Offset = 0) -> HistoryAnswer:
        """List what has changed in the rules of the job, newest first: by whom, why, and from which batch on."""
        job = self._asked.job
        changes = changes_of(job, rule_id or None)
        if rule_id and not changes:
            folder = kept_results(job)
            check_known_rules([rule_id], job, folder or job.checkpoint)
        return HistoryAnswer(
            changes=list(map(_change, with_differences(changes[offset : offset + limit]))),
            count=len(changes),
            has_more=offset + limit < len(changes),
        )


def _change(row: dict[str, Any]) -> ChangeRow:
    asked_us = row["asked_at"]
    times = {
        "asked_at": time_text(None if asked_us is None else asked_us // 1000),
        "in_force_at": time_text(row["in_force_ms"]),
    }
    return ChangeRow.model_validate(row | times)
