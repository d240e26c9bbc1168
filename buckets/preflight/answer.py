"""What was found of one thing that a configuration names."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from buckets.errors import BucketsError


@dataclass(frozen=True)
class Answer:
    """What was found of one thing.

    Attributes:
        thing: what was looked at, as `topic transactions`.
        where: its file, folder or table; empty for none.
        note: what is there, where nothing is wrong.
        faults: what is wrong with it, a line each.
    """

    thing: str
    where: str = ""
    note: str = ""
    faults: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.faults


def ask(thing: str, where: str, look: Callable[[], str]) -> Answer:
    """Look at a thing.

    Args:
        thing: what it is.
        where: where it is.
        look: returns what is there, or raises a BucketsError.
    """
    try:
        return Answer(thing, where, look())
    except BucketsError as error:
        return Answer(thing, where, faults=(error.message,))
    except OSError as error:
        return Answer(thing, where, faults=(f"{where}: cannot be read ({error.strerror}); see who may",))


def wrong(thing: str, where: Path, faults: Iterable[BucketsError]) -> Answer:
    """Return the answer of a file with faults, each of them once."""
    return Answer(thing, str(where), faults=tuple(dict.fromkeys(fault.message for fault in faults)))
