"""Alerts over HTTP, beside the outputs of a job: kept in the checkpoint until they have been taken."""
