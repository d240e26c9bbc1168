"""Incoming events: their schema, the formats they are written in, and their columns as typed Arrow arrays.

A reader turns a file or a message into arrivals, and each arrival becomes an event or a dead letter with a reason.
Rules, keys and windows do not belong here.
"""
