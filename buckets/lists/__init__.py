"""Lists that conditions look into: keys with values, an expiry, an author and a reason; a million of them and more.

`keys` defines what a key is: a text, several columns, or a network; `base` is a whole list as a sorted Arrow file;
`index` adds the changes since a base, and the lists as a batch sees them; `list_file` reads files.
"""
