"""Finds faults of valid rules: limits that nothing reaches, filters that nothing passes, and the like.

`lint.look` checks a `subject`. Each kind of finding has a code, such as B101, declared in `conditions`, `copies`,
`events` or `settings`, with a page in `pages`. `logic` determines the possible values of fields and conditions.
"""
