"""Tests of rules: run on given events without Spark, and reported.

Their written form is in `rule_files`.
"""
