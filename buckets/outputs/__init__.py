"""Results for other people: names and columns of the outputs, published messages, and reading them back.

How results are computed, or written into tables or topics, does not belong here.
"""
