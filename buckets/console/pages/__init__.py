"""The pages of the console, a module each: what a page shows, and what is done from it."""
