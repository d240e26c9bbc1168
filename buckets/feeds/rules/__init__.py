"""Rules: parsing feeds into changes, the book that numbers versions, and their history as a table."""
