"""Progress in a file: the first line, and then one now and then, however many batches there are."""

from types import SimpleNamespace

from buckets.cli import progress
from buckets.cli.console import Terminal
from buckets.cli.progress import LINE_EVERY_S, StatusLine


def test_what_is_no_terminal_gets_a_line_at_once_and_then_one_every_ten_seconds(monkeypatch, capsys):
    now_s = [5.0]
    # Of this module alone: a server in another thread of the tests would sleep until the real time is less.
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    line = StatusLine(Terminal(stderr=True))
    for batch in range(100):
        line.show(f"batch {batch}")
        now_s[0] += LINE_EVERY_S / 40
    assert capsys.readouterr().err.split() == ["batch", "0", "batch", "40", "batch", "80"]
