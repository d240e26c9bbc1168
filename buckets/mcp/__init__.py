"""What assistants ask of a job, by the Model Context Protocol over standard input and output; it imports no Spark.

`tools` reads, `drafts` tries and saves rules, and `server` serves both. Answers are the reports that commands print as
JSON, with their lists bounded.
"""
