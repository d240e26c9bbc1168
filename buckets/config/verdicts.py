"""Where the verdicts of a job are kept: what people have found about its alerts."""

from pydantic import Field, model_validator

from buckets.config.environment import Settings
from buckets.config.kafka import TopicName


class VerdictSettings(Settings):
    """Where verdicts are kept: in a table, which is the default, or in a topic that the audit keeps as a table.

    Attributes:
        table: a Delta table; where it is left out, one beside the tables of alerts.
        topic: a topic, which other programs may write to as well.
    """

    table: str | None = Field(default=None, min_length=1)
    topic: TopicName | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "VerdictSettings":
        if self.table is not None and self.topic is not None:
            message = "give one of `table` and `topic`"
            raise ValueError(message)
        return self
