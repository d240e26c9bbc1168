"""Lists that conditions look into: keys with values, an expiry, an author and a reason; a million of them and more.

`entry` is one of them, `base` a whole list as a sorted Arrow file, `index` a base with what has changed since,
`lists` several of them as a batch sees them, and `difference` what tells two states of a list apart.
"""
