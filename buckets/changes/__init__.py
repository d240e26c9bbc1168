"""People's changes to a job, and notes on it: rules, snoozes and verdicts, for the commands and the console."""
