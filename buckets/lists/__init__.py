"""Lists that conditions look into: keys with values, an expiry, an author and a reason; a million of them and more.

`keys` is what a key is made of: a text, several columns, or a network; `base` a whole list as a sorted Arrow file;
`index` a base with what has changed since, and the lists as a batch sees them; `list_file` reads files.
"""
