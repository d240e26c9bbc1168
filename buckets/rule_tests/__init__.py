"""Tests beside rules: run against given events without Spark, reported, and drafted from events that have happened.

How they are written is in `rule_files`.
"""
