"""What only some need is in packages that an extra brings: `pip install "buckets[console]"`."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

from buckets.errors import ConfigurationError

_FORMATS = {"avro": "fastavro", "protobuf": "grpc_tools"}
"""By format of messages what reads it, or compiles its schemas; most formats need nothing."""
_PACKAGES = {"grpc_tools": "grpcio-tools", "prometheus_client": "prometheus-client", "mcp_types": "mcp"}
"""Packages that are not called as what they bring."""


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import what an extra brings, in the `with`; a ConfigurationError says which package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        module, _, _ = (error.name or "buckets").partition(".")
        if module == "buckets":
            raise
        message = f'{what} needs {_PACKAGES.get(module, module)}: pip install "buckets[{name}]"'
        raise ConfigurationError(message) from None


def check_format(written_in: str) -> None:
    """Refuse a format of messages by a ConfigurationError, if what it needs is not there."""
    module = _FORMATS.get(written_in)
    with extra(written_in, f"the format {written_in}"):
        if module is not None and find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
