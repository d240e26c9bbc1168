"""Expressions over the fields of an event: read from SQL, typed, brought to one form, evaluated on columns.

Nothing of rules, files or Spark lives here. `expression` is the tree, `parser` reads it and `sql_text` writes it,
`kinds` checks its types, `normal_form` makes equal ones equal, `evaluation` computes it.
"""
