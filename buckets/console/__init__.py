"""The console: pages to look at a job, to judge its alerts and to change its rules; it imports no Spark."""
