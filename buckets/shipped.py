"""Files that come with the project: schemas and configurations, from the checkout or from inside an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of a shipped file, such as `schemas/transaction.yaml`."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name


DEMO_RULES = shipped("conf/demo-rules.yaml")
DEFAULT_SCHEMA = shipped("schemas/transaction.yaml")
