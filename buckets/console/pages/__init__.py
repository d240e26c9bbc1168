"""The pages of the console: what each shows, and what is done from it."""
