"""Where a running job gets its rules and its lists: files, tables, topics; and how these become numbered versions.

Files and tables are read whole whenever they have changed (`feed`), and topics message by message (`topics`).
"""
