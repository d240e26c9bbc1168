"""The terms of a batch: all that decides its results beside its rules and its events.

They are written down when a batch begins (`Ledger.terms_for`) and travel to its tasks with the rules, so that a batch
that is run again gives what it has half written already, whatever the configuration says by then.
"""

from pydantic import BaseModel, ConfigDict

from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema


class Terms(BaseModel):
    """What a batch is judged by beside its rules.

    Attributes:
        event_schema: what an event is.
        engine: the settings that decide results.
        evaluations: whether there is a result for every event and rule, fired or not.
        output: the kind of place where results go.
        arrival: the column that orders the arrivals, where there is one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_schema: EventSchema
    engine: EngineSettings
    evaluations: bool
    output: str
    arrival: str | None = None

    def conflict(self, begun: "Terms") -> str | None:
        """In what a start of these terms cannot go on with a batch of other terms, in words; None where it can."""
        if begun.output != self.output:
            return f"was begun with output.kind {begun.output}, not {self.output}"
        if begun.arrival != self.arrival:
            before, now = (f"source.arrival {terms.arrival or 'left out'}" for terms in (begun, self))
            return f"was begun with {before}, not {now}"
        return None
