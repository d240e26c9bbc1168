"""`buckets backtest`."""
