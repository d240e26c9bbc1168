"""Rules: how what is read becomes changes, the book that numbers their versions, and its history as a table."""
