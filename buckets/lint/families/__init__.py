"""The kinds of findings: one module a family, found by its name.

A family declares its codes, and `find(subject)` finds what they are about. A new code is a declaration there, a page in
`pages` whose examples are tested, and cases in `tests/core/test_lint.py`.
"""
