"""The kinds of findings: one module a family, found by its name.

A family has `CODES`, and `find(subject)`, which gives the findings of these codes. A new code is an entry there, a page
in `pages` whose examples are tested, and cases in `tests/core/test_lint.py`.
"""
