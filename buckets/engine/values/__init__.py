"""The values of rules and their features at events."""
