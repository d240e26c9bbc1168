"""The chart for Kubernetes, examples of values, and what helm makes of them."""
