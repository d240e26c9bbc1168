"""Expressions over the fields of an event: parsed from SQL, typed, normalised, and evaluated on columns.

`expression` is the tree with its SQL and its normal form, `parser` reads it, `wording` puts it into English and checks
its types, `evaluation` computes it with the arithmetic of `number_functions`, and `certainty` finds its possible
results if only the bounds of some numbers are known. Rules, files and Spark do not belong here.
"""
