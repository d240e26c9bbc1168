"""History scored again by the engine in memory."""
