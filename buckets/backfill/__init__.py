"""Timelines that are filled from the archive beside the live ones."""
