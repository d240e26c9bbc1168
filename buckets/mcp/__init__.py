"""Serves assistants, by the Model Context Protocol over standard input and output; it imports no Spark.

`tools` reads, `drafts` tries and saves rules, and `server` serves both. Answers are the JSON reports of commands, with
bounded lists.
"""
