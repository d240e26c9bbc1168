"""Rules in YAML files: reading them, editing them with their comments kept, and notes on who changed what and why.

What a rule means is in `rules`; watching files while a job runs is in `feeds`.
"""
