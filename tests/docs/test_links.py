"""Links of the documents lead somewhere, also those that only a reader of the repository follows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from docs import build
from tests.docs.blocks import ROOT, page_name, page_paths

DOCUMENTS = [*page_paths(), *(ROOT / name for name in build.DOCUMENTS)]
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"```.*?```|``.*?``|`[^`\n]*`", re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """All pages of the site, put together as its builder does."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    build.put_together(folder)
    return folder


def links(text: str) -> Iterator[tuple[str, str]]:
    """The local links of a page: a path, which may be empty, and an anchor, which may be empty."""
    yield from ((match[1], match[2] or "") for match in _LINK.finditer(_CODE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page: what stands in braces, or follows from the words."""
    found = set()
    for title in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        given = re.search(r"\{ #([\w-]+) \}$", title)
        words = re.sub(r"[^\w\s-]", "", title).strip().lower()
        found.add(given[1] if given else re.sub(r"[-\s]+", "-", words))
    return found


def broken(path: Path, text: str) -> Iterator[str]:
    for target, anchor in links(text):
        linked = (path.parent / target).resolve() if target else path
        if not linked.exists():
            yield f"{path.name}: {target}"
        elif anchor and anchor not in anchors(linked.read_text(encoding="utf-8")):
            yield f"{path.name}: {target}#{anchor}"


def test_the_links_of_the_site_lead_somewhere(site):
    pages = sorted(site.rglob("*.md"))
    assert len(pages) > 40
    assert [fault for page in pages for fault in broken(page, page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *(ROOT / name for name in build.DOCUMENTS)], ids=page_name)
def test_the_links_of_a_document_in_the_repository_lead_somewhere(path):
    assert list(broken(path, path.read_text(encoding="utf-8"))) == []


def test_every_page_is_in_the_navigation_once(site):
    text = (build.FOLDER / "zensical.toml").read_text(encoding="utf-8")
    named = re.findall(r'= "([\w/-]+\.md)"', text)
    assert sorted(named) == sorted(page.relative_to(site).as_posix() for page in site.rglob("*.md"))


def test_a_broken_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](gone.md) [b](#two) [c](page.md#one) [d](#one) `[e](code.md)`\n", encoding="utf-8")
    assert list(broken(page, page.read_text(encoding="utf-8"))) == ["page.md: gone.md", "page.md: #two"]


def test_a_document_that_links_to_no_page_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("[a](Makefile)\n", encoding="utf-8")
    with pytest.raises(BucketsError, match="no page of the site"):
        build.document_page("CHANGELOG.md", "changelog.md")
    (tmp_path / "CHANGELOG.md").write_text("[a](docs/pages/runbook.md#late)\n", encoding="utf-8")
    assert build.document_page("CHANGELOG.md", "a/changelog.md") == "[a](../runbook.md#late)\n"
