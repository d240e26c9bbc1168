"""JSON as everything here writes it: characters as they are, not as escapes."""

from json import JSONEncoder

write_json = JSONEncoder(ensure_ascii=False).encode
"""Return a value as JSON text; the encoder is made once, which takes longer than a short value."""
