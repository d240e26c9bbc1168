"""The pages of the console, and the actions on them."""
