"""Pages of the reference, written from the code, so that they say what it does."""
