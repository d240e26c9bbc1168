"""Expressions over the fields of an event: read from SQL, typed, brought to one form, evaluated on columns.

Nothing of rules, files or Spark lives here. `expression` is the tree, `parser` reads it and `sql_text` writes it,
`kinds` checks its types, `expression` makes equal ones equal, `evaluation` computes it with the numbers of `decimals`
and the functions of `number_functions`. `certainty` says what it may come to when some numbers are known by their
bounds alone, which `interval` computes with, and `wording` says it in English.
"""
