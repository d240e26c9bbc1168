"""What the environment says of object stores, and what of it no client can be made with."""

import os
from typing import Final

from buckets.errors import BucketsError
from buckets.web_address import is_address

ENDPOINT: Final = "AWS_ENDPOINT_URL"
_ENDPOINTS = (ENDPOINT, f"{ENDPOINT}_S3", "AWS_ENDPOINT")
_VENDORS = ("AWS_", "AZURE_")


def check_environment() -> None:
    """See that clients of stores can be made of the environment; their libraries end the program where they cannot.

    Raises:
        BucketsError: an endpoint is no address, or a value has a line end or another character that cannot be seen.
    """
    for name in _ENDPOINTS:
        endpoint = os.environ.get(name)
        if endpoint is not None and not is_address(endpoint):
            message = f"{name}: {endpoint!r} is no address, as in http://localhost:9000; correct it, or unset it"
            raise BucketsError(message)
    for name, value in os.environ.items():
        if name.startswith(_VENDORS) and not value.isprintable():
            message = f"{name}: holds a line end or another character that cannot be seen; take it out"
            raise BucketsError(message)
