"""Object stores: objects as paths, and local copies of objects."""
