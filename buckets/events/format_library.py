"""The packages that read formats with schemas, which only they need, and what brings them."""

from importlib.util import find_spec

from buckets.errors import BucketsError

_PACKAGES = {"avro": ("fastavro", "fastavro"), "protobuf": ("grpcio-tools", "grpc_tools")}
"""By format its package, and a module of that."""


def check_library(written_in: str) -> None:
    """See that the package of a format is there; most formats need none.

    Raises:
        BucketsError: it is not.
    """
    package, module = _PACKAGES.get(written_in, ("", ""))
    if package and find_spec(module) is None:
        install = f'pip install "buckets[{written_in}]"'
        message = f"the format {written_in} needs the package {package}; install it by `{install}`"
        raise BucketsError(message)
