"""Alert policies and what they remember."""
