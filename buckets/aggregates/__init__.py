"""What a feature may compute over its window: a module for each family of aggregates, which names them.

An aggregate says which components it is made of, each of which the kernel computes over the cells of a timeline, and
how its value and bounds follow from theirs. What they share is in `aggregate` and `component`. A new one is a module
here and its test: CONTRIBUTING has an example.
"""
