"""Tables of features for training."""
