"""What rules would have raised."""
