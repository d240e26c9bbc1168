"""Files that come with the project: schemas and configurations, from the checkout or from inside an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(name: str) -> Path:
    """Return the path of a file that comes with the project, such as `schemas/transaction.yaml`."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name


DEMO_RULES = resource("conf/demo-rules.yaml")
DEFAULT_SCHEMA = resource("schemas/transaction.yaml")
