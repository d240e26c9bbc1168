"""What is wrong with rules that are valid: limits that nothing reaches, filters that nothing passes, and the like.

`lint.look` looks for it in `subject`. Each kind of finding has a code, such as B101, declared in `conditions`,
`copies`, `events` or `settings`, with a page in `pages`. `logic` says what values and conditions can be.
"""
