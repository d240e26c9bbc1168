"""Tests beside rules: run against given events without Spark, and reported.

How they are written is in `rule_files`.
"""
