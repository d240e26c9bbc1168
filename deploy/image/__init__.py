"""The OCI image: what is in it, and how it is built without an engine for containers."""
