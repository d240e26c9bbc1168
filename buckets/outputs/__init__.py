"""Results as other people see them: names and columns of the outputs, published messages, and reading them back.

How results are computed does not belong here, nor how they are written into tables or topics.
"""
