"""What only some need is in packages that an extra brings: `pip install "buckets[console]"`."""

import contextlib
from collections.abc import Iterator

from buckets.errors import ConfigurationError


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import what an extra brings, in the `with`.

    Args:
        name: of the extra.
        what: needs it, for the error.

    Raises:
        ConfigurationError: a package is missing; says which, and what brings it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package, _, _ = (error.name or "buckets").partition(".")
        if package == "buckets":
            raise
        message = f'{what} needs {package.replace("_", "-")}: pip install "buckets[{name}]"'
        raise ConfigurationError(message) from None
