"""Long questions, such as a backtest: asked in a process of their own, one at a time."""
