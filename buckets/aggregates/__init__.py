"""What a feature may compute over its window: one module an aggregate, found by its name.

An aggregate says of which components it is made, each of which the kernel computes over the cells of a timeline, and
how its value and bounds follow from theirs. `aggregate` holds what they share. A new one is a module here, an entry in
`Function`, a case in its law test, and a line in the README.
"""
