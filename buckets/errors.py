"""The one error that people see: a sentence that says what is wrong, where, the limit, and what to do."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from buckets.exit_codes import FAILED, MISUSED
from buckets.printable import one_line


class BucketsError(Exception):
    """Something that a person can fix; its text is one clear line.

    Any other exception that is raised is a defect of this project.
    """

    exit_code: ClassVar[int] = FAILED
    """With which code a command ends that it ends."""

    def __init__(self, message: str) -> None:
        """Keep the message: what is wrong, where, the limit, what to do; quoted names may hold any characters."""
        self.message = one_line(message)
        super().__init__(self.message)


class ConfigurationError(BucketsError):
    """A configuration, or a file that it names, is not valid, so that every start will end so."""

    exit_code = MISUSED


class Outage(BucketsError):
    """Kafka or an object store does not answer, which may be temporary."""


Fault = str | BucketsError  # What is wrong, as its text or as what was raised


def as_errors(faults: Iterable[Fault]) -> list[BucketsError]:
    """Convert faults to errors that can be raised."""
    return [fault if isinstance(fault, BucketsError) else BucketsError(fault) for fault in faults]


def refuse(faults: Iterable[Fault]) -> None:
    """Raise the first of some faults, if any; its line says how many more there are."""
    errors = as_errors(faults)
    if errors:
        raise first_of(errors)


def first_of(faults: Sequence[BucketsError]) -> BucketsError:
    """Return the first fault, whose line says how many more there are; an outage alone, which may be over soon."""
    first, *more = faults
    return BucketsError(f"{first.message} (and {len(more)} more)") if more and not isinstance(first, Outage) else first


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text; its type if it has no text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def kind_and_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its text, for a defect that somebody has to find."""
    kind, said = type(error).__name__, first_line(error)
    return kind if said == kind else f"{kind}: {said}"
