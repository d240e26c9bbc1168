"""What Java says of a failure, cut to one line."""

import re

from buckets.errors import first_line

_FRAME = "at "
"""How a line begins that names a place in a program."""
_LONGEST = 300
_NO_ENGINE = "No module named 'buckets'"
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)"')


def last_error(cause: BaseException) -> str:
    """Return the line of a failure's text that names the error at its root, cut to what fits a message."""
    lines = [line.strip() for line in str(cause).splitlines() if "Error" in line or "Exception" in line]
    errors = [line for line in lines if not line.startswith(_FRAME)]
    return (errors[-1].removeprefix("Caused by: ") if errors else first_line(cause))[:_LONGEST]


def missing_python(text: str) -> str | None:
    """Return what to do where a machine has no Python with the engine for its tasks; None where it has."""
    program = _NO_PYTHON.search(text)
    if program is not None:
        return (
            f"a machine has no {program[1]}, the Python for its tasks: see that spark.pyspark.python names one on each "
            "executor, and that the job is started where the same name leads to one too; see the guide on clusters"
        )
    if _NO_ENGINE in text:
        return (
            "the Python of an executor has no buckets: send an environment that has it along with --archives, or "
            "install it on each machine, and name its Python as spark.pyspark.python; see the guide on clusters"
        )
    return None
