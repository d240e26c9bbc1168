"""The tools that show rules as a job reads them, and what has changed in them."""

from typing import Annotated, Any

from pydantic import Field

from buckets.changes.completion import read_completions
from buckets.changes.origin import listed_rule
from buckets.changes.versions import changes_of, check_known_rules, with_differences
from buckets.config.job import kept_results
from buckets.mcp.answer import Limit, Offset, ToolAnswer, time_text
from buckets.mcp.drafts import NEW_FILE
from buckets.questions.asked_job import AskedJob
from buckets.rules.release import stage

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
