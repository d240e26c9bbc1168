"""Rules in YAML files: reading them, editing them without losing comments, and notes on who changed what and why.

The meaning of rules is in `rules`; watching files while a job runs is in `feeds`.
"""
