"""Optional packages, which extras install: `pip install "buckets[console]"`."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

from buckets.errors import ConfigurationError

_FORMATS = {"avro": "fastavro", "protobuf": "grpc_tools"}
"""The module that reads a message format, or compiles its schemas; most formats need none."""
_PACKAGES = {"grpc_tools": "grpcio-tools", "prometheus_client": "prometheus-client", "mcp_types": "mcp"}
"""Packages whose name differs from that of their module."""


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import packages of an extra inside the `with`; a ConfigurationError says which package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        module, _, _ = (error.name or "buckets").partition(".")
        if module == "buckets":
            raise
        message = f'{what} needs {_PACKAGES.get(module, module)}: pip install "buckets[{name}]"'
        raise ConfigurationError(message) from None


def check_format(written_in: str) -> None:
    """Raise a ConfigurationError if the packages that a message format needs are missing."""
    module = _FORMATS.get(written_in)
    with extra(written_in, f"the format {written_in}"):
        if module is not None and find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
