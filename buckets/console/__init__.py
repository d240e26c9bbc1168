"""The console: web pages to watch a job, judge its alerts and change its rules; it imports no Spark."""
