"""Topics as Delta tables, each message once: columns and constraints, rows, the folder, and the writer."""
