"""The exit codes of this project's processes.

A killed process has a code of the system: 137 for SIGKILL, 143 for SIGTERM before Python has started.
"""

DONE = 0  # All is well, or a job or an audit has been stopped by a signal
FAILED = 1
"""Something was found or has failed: a check, a test or a comparison does not hold, a query or a command broke off."""
MISUSED = 2  # Wrong options, or a configuration that is not valid: the same start would end the same way
INTERRUPTED = 130
"""Ctrl-C or SIGTERM ended a command before it was done; of a job, a second signal that ended it at once."""
