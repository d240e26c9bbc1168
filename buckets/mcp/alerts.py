"""The tool that lists alerts, by which an assistant finds the alert that somebody means."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from buckets.mcp.answer import FromTime, Limit, ToolAnswer, ToTime, plain_key, time_text
from buckets.questions.asked_job import AskedJob
from buckets.questions.listed_alerts import AlertFilter, given_findings, list_alerts, place_text, read_place, value_text

Kind = Literal["in force", "on trial", "held back", "all"]
_KINDS = {"in force": "", "on trial": "trial", "held back": "held", "all": "all"}


def _check_value(value: Any) -> Any:
    if not isinstance(value, str | int | bool):
        message = "must be a text, a whole number, true or false"
        raise ValueError(message)
    return value


KeyFields = dict[str, Annotated[str | int | bool, BeforeValidator(_check_value)]]
"""The values of a key, by field."""


class AlertRow(ToolAnswer):
    """An alert."""

    alert_id: str
    event_time: str | None
    """When its event happened, in ISO 8601 and UTC."""
    event_id: str
    rule_id: str
    rule: str
    """The rule in English."""
    rule_version: int | None
    key: dict[str, Any]
    """The values of the fields that the rule groups by."""
    why: str
    """The value and the limit that it crossed, or the condition with the numbers in it."""
    kind: Literal["in force", "on trial", "held back"]
    severity: str | None
    tags: list[str]
    warm: bool | None
    """Whether nothing that its windows need could be missing."""
    certain: bool | None
    """Whether the limit is crossed for any value between the bounds of what is not exact."""
    verdict: str | None
    """What people have found: fraud, legitimate or unclear; null for nothing yet."""


class AlertsAnswer(ToolAnswer):
    """Alerts, newest first."""

    alerts: list[AlertRow]
    has_more: bool
    """Whether there may be older ones."""
    next_before: str
    """What to give as `before` to read on; empty where there are none."""
    rows_looked_at: int
    """How many rows were looked through; at most about a million in one call."""


class AlertTools:
    """Lists alerts."""

    def __init__(self, asked: AskedJob) -> None:
        """List those of a job."""
        self._asked = asked

    def alerts(
        self,
        kind: Annotated[Kind, Field(description="Which alerts.")] = "in force",
        rule_id: Annotated[str, Field(description="Only those of this rule; empty for all.")] = "",
        key: Annotated[
            KeyFields, Field(description="Only those whose key has these values, by field, as in {'payerId': 'p1'}.")
        ] = {},  # noqa: B006 - it becomes a default in a schema, and nobody changes it
        verdict: Annotated[
            Literal["", "fraud", "legitimate", "unclear", "none"],
            Field(description="Only those that people have found to be this; none for those without a verdict."),
        ] = "",
        from_time: FromTime = "",
        to_time: ToTime = "",
        limit: Limit = 20,
        before: Annotated[str, Field(description="next_before of an earlier answer, to read on.")] = "",
    ) -> AlertsAnswer:
        """List alerts, newest first, as `buckets alerts` does; of ids explain_alert says more."""
        wanted = AlertFilter(_KINDS[kind], rule_id, "", "", verdict, from_time, to_time, key_texts(key))
        return alert_rows(self._asked, wanted, limit, before)


def key_texts(key: KeyFields) -> dict[str, str]:
    """Return the values of a key as texts."""
    return {field: value_text(value) for field, value in key.items()}


def alert_rows(asked: AskedJob, wanted: AlertFilter, limit: int, before: str = "") -> AlertsAnswer:
    """Return alerts of a job, newest first."""
    listed = list_alerts(asked.results, wanted, read_place(before), given_findings(asked.job), limit)
    return AlertsAnswer(
        alerts=list(map(_row, listed.rows)),
        has_more=listed.after is not None,
        next_before=place_text(listed.after),
        rows_looked_at=listed.looked_at,
    )


def _row(row: dict[str, Any]) -> AlertRow:
    verdict = row["verdict"]
    return AlertRow.model_validate(
        row
        | {
            "event_time": time_text(row["event_time"]),
            "key": plain_key(row["key"]),
            "kind": row["kind"] or "in force",
            "tags": row["tags"] or [],
            "verdict": None if verdict is None else verdict.verdict,
        }
    )
