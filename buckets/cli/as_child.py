"""Runs a command as the child of another process, and ends with it: `python -m buckets.cli.as_child watch conf.yaml`.

The parent holds the other end of the standard input. When that closes, however the parent ended, the command is
interrupted.
"""

import contextlib
import os
import signal
import threading

from buckets.cli.commands import main as run_command


def _interrupt_at_end_of_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Run the command that the arguments name."""
    # A shell makes the processes that it runs in the background ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_interrupt_at_end_of_input, daemon=True).start()
    run_command()


if __name__ == "__main__":
    main()
