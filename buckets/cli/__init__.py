"""The command `buckets`, a module per command: options, progress, and what is printed.

A command checks its options, calls what is below, and shows what came out; it computes nothing itself.
"""
