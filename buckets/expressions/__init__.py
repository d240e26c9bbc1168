"""Expressions over the fields of an event: read from SQL, typed, brought to one form, evaluated on columns.

`expression` is the tree with its SQL and its one form, `parser` reads it, `wording` says it in English and checks its
types, `evaluation` computes it with the arithmetic of `number_functions`, and `certainty` says what it may come to when
some numbers are known by their bounds alone. Nothing of rules, files or Spark lives here.
"""
