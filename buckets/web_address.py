"""Addresses of HTTP servers: registries, receivers of alerts, object stores."""

import re
from urllib.parse import urlsplit

_ADDRESS = re.compile(r"https?://[^\s/@?#]+(/[^\s@#]*)?")


def is_address(text: str, may_have_query: bool = False) -> bool:
    """Return whether a text is a usable address: a host that can be looked up, a possible port, and the rest ASCII."""
    if not _ADDRESS.fullmatch(text):
        return False
    try:
        address = urlsplit(text)
        is_whole = bool((address.hostname or "").encode("idna")) and address.port != 0
    except ValueError:
        return False
    return is_whole and (address.path + address.query).isascii() and (may_have_query or "?" not in text)
