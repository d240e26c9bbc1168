"""The command `buckets`, a module per command: options, progress, and what is printed.

A command checks its options, calls what is below, and shows what came out; it computes nothing itself. What it cannot
do is a `BucketsError`, which any function here may raise and the command line prints in one line.
Only Spark is imported inside a command, since that takes long; all else is imported as anywhere.
"""
