"""Tables of what came out."""
