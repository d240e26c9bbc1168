"""Answers in the call: `buckets serve` takes payments by HTTP, writes them to a job's topic, and scores them.

The topic is the log and defines the order. This process keeps all timelines, starting from the state in the job's
checkpoint, and follows the topic beside the job; it stores nothing.
"""
