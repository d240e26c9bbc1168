"""What a command line that was run in this process has left."""

from typing import NamedTuple


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def one_line(ran: Ran, code: int) -> str:
    """The error, which is one line on stderr and nothing else."""
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert ran.err.endswith("\n")
    return ran.err.removeprefix("error: ").strip()
