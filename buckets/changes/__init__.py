"""What people change in a job and say of it: its rules, snoozes and verdicts, as commands and the console do it."""
