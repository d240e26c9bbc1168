"""All pages of the reference that are written from the code."""

from collections.abc import Callable, Mapping
from typing import Final

from docs.reference import aggregates, commands, configuration, lint_codes, outputs, python_api, rules

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/event-schema.md": configuration.event_schema_page,
    "reference/rules.md": rules.page,
    "reference/aggregates.md": aggregates.page,
    "reference/configuration.md": configuration.configuration_page,
    "reference/outputs.md": outputs.page,
    "reference/lint-codes.md": lint_codes.page,
    "reference/command-line.md": commands.page,
    "reference/python.md": python_api.page,
}
"""What writes each page, by its path on the site."""
