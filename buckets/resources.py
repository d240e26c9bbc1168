"""Files that come with the project: schemas and configurations, from the checkout or from inside an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(name: str) -> Path:
    """Return the path of a file that comes with the project, such as `schemas/transaction.yaml`."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name


DEMO_RULES = resource("conf/demo-rules.yaml")
DEFAULT_SCHEMA = resource("schemas/transaction.yaml")
SITE = _PACKAGE / "site"  # Where `make docs` puts the documentation as a site, also in an installed wheel


def built_site() -> Path | None:
    """Return the folder of the documentation as a site, whose first page is `index.html`; None if it was not built."""
    return SITE if (SITE / "index.html").is_file() else None
