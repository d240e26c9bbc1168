"""What is wrong with rules that are valid: limits that nothing reaches, filters that nothing passes, and the like.

`lint.look` looks for it. Each kind of finding has a code, such as B101, which belongs to a module of `families` and has
a page in `pages`. `domain` and `logic` say what a value can be and whether a condition can be true.
"""
