"""Forecasts the needs of a job before it has run, from its rules, its keys, its rate and its cluster.

A `Workload` describes the question, `amounts` the work of a batch, `Constants` the cost of each unit of work on a
machine, and `forecast` combines them. All of it is pure; `bench/size.py` fits the constants.
"""
