"""Events as they come in: their schema, the formats they are written in, and their columns as typed Arrow arrays.

A reader turns a file or a message into arrivals, and each arrival becomes an event or a dead letter with a reason. What
an event counts for (rules, keys, windows) does not belong here.
"""
