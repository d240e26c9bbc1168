"""The page of lint codes: every code with its page, as `buckets rules check --explain CODE` shows it."""

import re

from buckets.lint.lint import codes
from buckets.lint.subject import Code
from docs.reference.markdown import table

_INTRO = """\
# Lint codes

`buckets rules check` finds what is wrong with rules that are valid. Each finding has a code. `--codes` lists them and
`--explain CODE` shows one of these sections. An *error* ends with exit code 1, a *warning* does so with `--strict`,
and a *note* is worth a look. [Lint rules](../guides/lint-rules.md) says how to run it.

"""


def page() -> str:
    """Return the page."""
    listed = [(f"[{code.code}](#{code.code.lower()})", code.level, code.title) for code in codes().values()]
    return _INTRO + table(("Code", "Level", "Finds"), listed) + "".join(map(_section, codes().values()))


def _section(code: Code) -> str:
    """Return the section of a code, whose own headings become bold lines."""
    title, _, text = code.page.partition("\n")
    text = re.sub(r"^## (.*)$", r"**\1**", text, flags=re.MULTILINE)
    return f"\n#{title} {{ #{code.code.lower()} }}\n{text.rstrip()}\n"
