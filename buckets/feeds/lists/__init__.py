"""Lists: how what is read becomes changes, and the book that numbers their versions, in a thread of its own."""
