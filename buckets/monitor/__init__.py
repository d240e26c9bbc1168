"""What a running job is doing: its status file, rates and delays of the last minute, files that it does not read.

It only observes and decides nothing.
"""
