"""History scored again, and compared with what was recorded."""
