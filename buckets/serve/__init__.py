"""Answers in the call: `buckets serve` takes payments by HTTP, writes them to a job's topic, and scores them.

The topic is the log and decides the order. Beside the job, all timelines are kept in this process, from the state of
the job's checkpoint on, and follow the topic; nothing is stored.
"""
