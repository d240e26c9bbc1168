"""Rules, filters, rule sets, and how one version of them becomes the next: values and pure functions.

No files, threads, clocks, Kafka or Delta: where rules come from is in `rule_files` and `feeds`.
"""
