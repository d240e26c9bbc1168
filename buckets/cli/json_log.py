"""The log of a job for machines: one object of JSON a line, in place of lines for people."""

import contextlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from buckets.cli.console import Level, Terminal, Terminated, Told, json_text
from buckets.clock import epoch_ms
from buckets.config.environment import secrets_of
from buckets.config.job import Job
from buckets.errors import BucketsError, kind_and_line
from buckets.exit_codes import FAILED, INTERRUPTED
from buckets.moment import iso_text

_HIDDEN = "***"
LogFormat = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="What the job says: lines of text, or objects of JSON.")
]


class JsonLog(Terminal):
    """A console that prints each line as an object: time, level, message, and what is known besides."""

    def __init__(self) -> None:
        """Print on standard error."""
        super().__init__(stderr=True)
        self._secrets: Sequence[str] = ()

    @property
    def is_terminal(self) -> bool:
        """Say that nothing can be renewed in place."""
        return False

    def hide(self, secrets: Sequence[str]) -> None:
        """Never print these, wherever they occur."""
        self._secrets = secrets

    def say(self, text: str) -> None:
        """Print a line that nobody has to act upon."""
        self.tell(text)

    def tell(self, text: str, level: Level = "info", facts: Mapping[str, Any] | None = None) -> None:
        """Print an object of a line."""
        line = {"time": iso_text(epoch_ms()), "level": level, "message": self._shown(text)}
        known = {name: self._shown(fact) for name, fact in (facts or {}).items() if fact is not None}
        self.file.write(json_text(line | known, indent=None) + "\n")
        self.file.flush()

    def _shown(self, fact: Any) -> Any:
        if isinstance(fact, str):
            for secret in self._secrets:
                fact = fact.replace(secret, _HIDDEN)
        return fact


def log_of(log_format: str) -> Terminal:
    """Return where a job's log goes, in a format."""
    return JsonLog() if log_format == "json" else Terminal(stderr=True)


def hide_secrets(log: Terminal, job: Job) -> None:
    """See that a log for machines never shows what is secret in a job's configuration."""
    if isinstance(log, JsonLog):
        log.hide(list(secrets_of(job.settings)))


@contextlib.contextmanager
def errors_in(log: Terminal) -> Iterator[None]:
    """Write what ends a job into its log, where that is JSON; in text the command line says it.

    SIGTERM before the job has begun to run is no fault.

    Raises:
        Told: it has been said; holds the exit code.
    """
    try:
        with contextlib.nullcontext() if not isinstance(log, JsonLog) else _errors_in_json(log):
            yield
    except Terminated:
        log.tell("stopped before the first batch; start it again to go on")


@contextlib.contextmanager
def _errors_in_json(log: JsonLog) -> Iterator[None]:
    try:
        yield
    except Terminated:
        raise
    except BucketsError as error:
        log.tell(error.message, "error", {"code": getattr(error, "code", None)})
        raise Told(error.exit_code) from None
    except KeyboardInterrupt:
        log.tell("interrupted: nothing is left half done", "warning")
        raise Told(INTERRUPTED) from None
    except Exception as error:
        log.tell(kind_and_line(error), "error", {"trace": traceback.format_exc()})
        raise Told(FAILED) from None
