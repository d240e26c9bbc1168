"""When idle keys leave the state."""
