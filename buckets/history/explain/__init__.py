"""Why an alert was raised, or was not."""
