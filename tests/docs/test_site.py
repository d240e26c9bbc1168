"""The site is built from the documents, with every link checked, and needs nothing from elsewhere."""

import re
import shutil

import pytest

from buckets import resources
from docs import build
from tests.docs.built_site import build_site

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"
    |<link\b[^>]*\brel="(?:stylesheet|icon|preload|preconnect)"[^>]*\bhref="([^"]+)"
    |@import\s+["']([^"']+)|url\((https?:[^)]+)\)""",
    re.VERBOSE,
)
"""What a browser loads with a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in a folder of its own."""
    return build_site(tmp_path_factory.mktemp("docs"))


@pytest.mark.slow
def test_the_site_has_a_page_for_every_document(site):
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert {"index.html", "runbook.html", "reference/configuration.html", "explanation/decisions.html"} <= pages
    assert len(pages) > 40
    assert "evaluate" in (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert "BacktestReport" in (site / "reference" / "python.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        for match in _LOADED.finditer(path.read_text(encoding="utf-8")):
            (target,) = filter(None, match.groups())
            assert not re.match(r"(https?:)?//", target), path


@pytest.mark.slow
def test_a_broken_link_ends_the_build(tmp_path, monkeypatch):
    shutil.copy(build.FOLDER / "zensical.toml", tmp_path)
    pages = tmp_path / ".build" / "pages"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("# One\n\n[two](two.md)\n", encoding="utf-8")
    monkeypatch.setattr(build, "CONFIGURATION", tmp_path / "zensical.toml")
    monkeypatch.setattr(build, "SOURCES", pages)
    monkeypatch.setattr(build, "BUILT", tmp_path / ".build" / "site")
    monkeypatch.setattr(build, "SITE", tmp_path / "site")
    monkeypatch.setattr(build, "put_together", lambda folder: None)
    with pytest.raises(SystemExit, match="not built"):
        build.main()
    assert not (tmp_path / "site").exists()


def test_whether_there_is_a_site_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "SITE", tmp_path)
    assert resources.built_site() is None
    (tmp_path / "index.html").touch()
    assert resources.built_site() == tmp_path
