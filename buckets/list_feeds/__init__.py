"""Where a running job gets its lists, and how they become numbered versions.

`feed` is what follows a list, `file_feed` and `table_feed` two kinds of it (the third, of topics, is in
`buckets.kafka`), and `list_book` turns what they find into versions, in a thread of its own.
"""
