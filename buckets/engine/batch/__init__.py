"""The events of a batch on their way to their keys."""
