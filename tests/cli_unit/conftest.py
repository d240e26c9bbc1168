"""The command line, run in this process."""

import sys
from collections.abc import Callable

import pytest

from buckets.cli.commands import exit_code
from tests.cli_unit.ran import Ran

Buckets = Callable[..., Ran]


@pytest.fixture
def buckets(monkeypatch, capsys) -> Buckets:
    """Runs a command line and gives its exit code and what it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["buckets", *map(str, arguments)])
        code = exit_code()
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run
