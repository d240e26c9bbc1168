"""What a feature may compute over its window: a module for each family of aggregates, which names them.

An aggregate names its components, which the kernel computes over the cells of a timeline, and derives its value and
bounds from theirs. `aggregate` and `component` have what all aggregates share. A new one is a module here and its test:
CONTRIBUTING has an example.
"""
