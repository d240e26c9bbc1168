"""What a running job is doing: its status file, rates and delays of the last minute, files that are not read.

It only watches, and decides nothing.
"""
