"""Where a job tells how it is: metrics for Prometheus, and whether it is alive and ready."""

from pydantic import Field

from buckets.config.environment import Settings

LOOPBACK = "127.0.0.1"


class MetricsSettings(Settings):
    """The `metrics` part of a configuration.

    Attributes:
        port: where it answers.
        host: the address at which it listens: of this machine alone, unless something else is given.
        ready_lag: a job that is behind by more messages than this is not ready.
    """

    port: int = Field(ge=1, le=65_535)
    host: str = Field(default=LOOPBACK, min_length=1)
    ready_lag: int = Field(default=100_000, ge=0)

    @property
    def place(self) -> str:
        """Where it answers, in words."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
