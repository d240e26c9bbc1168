"""Sources of a running job's rules and lists (files, tables, topics), and how their contents become numbered versions.

Files and tables are read whole after each change (`feed`), topics message by message (`topics`).
"""
