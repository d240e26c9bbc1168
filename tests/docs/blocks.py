"""Blocks of code on pages of the documentation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "pages"
_FENCE = re.compile(r'^( *)```(\w*)(?: title="([^"]+)")?\n(.*?)^\1```$', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, the file that a reader saves it as, its text, and its line on the page."""

    language: str
    title: str
    text: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page, in their order."""
    return [
        Block(match[2], match[3] or "", match[4], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]


def page_paths() -> list[Path]:
    """All pages that people write: those of the site, and the README."""
    return [ROOT / "README.md", *sorted(PAGES.rglob("*.md"))]


def page_name(path: Path) -> str:
    return path.relative_to(PAGES if path.is_relative_to(PAGES) else ROOT).as_posix()


def section(page: str, title: str) -> str:
    """The text of a page from a heading on."""
    text = (PAGES / page).read_text(encoding="utf-8")
    assert title in text
    return text.partition(title)[2]


def commands_of(block: Block) -> Iterator[tuple[str, str | None]]:
    """The commands of a block, each with the output that stands below it; None where a block shows no outputs."""
    joined = re.sub(r" *\\\n *", " ", block.text)
    if block.language == "sh":
        yield from ((line, None) for line in joined.splitlines() if line.strip() and not line.startswith("#"))
        return
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output
