"""Alerts over HTTP, besides the outputs of a job: kept in the checkpoint until they are accepted."""
