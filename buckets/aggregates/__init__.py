"""What a feature may compute over its window: one module an aggregate, found by its name.

An aggregate says of which components it is made, each of which the kernel computes over the cells of a timeline, and
how its value and bounds follow from theirs; and all else that rules, lint and explanations know of it. What they share
is in `aggregate` and `component`. A new one is a module here and its test: CONTRIBUTING has an example.
"""
