"""Object stores: their objects as paths, and what Spark is told of them."""
