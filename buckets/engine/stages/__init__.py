"""The stages of a batch: fan-out, shards, and what needs several of them."""
