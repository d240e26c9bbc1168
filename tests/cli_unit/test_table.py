"""Tables at 80 columns: names and numbers are whole, and an empty cell is one."""

import pytest

from buckets.cli.console import Terminal, TextTable


@pytest.mark.parametrize("name", ["", "card-five-in-five-minutes"])
def test_names_and_numbers_are_whole_beside_a_text_that_is_folded(capsys, name):
    table = TextTable(None, ("Rule", "What", ">Alerts"))
    table.add_row(name, "word " * 30, "1,234,567.89")
    Terminal(width=80).print(table)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(name in line and "1,234,567.89" in line for line in lines)
