"""Checks before a job starts; they start and write nothing."""
