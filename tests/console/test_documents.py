"""The documentation under `/docs`: its own scripts run there and no others; where it was not built a line says so."""

import re

import pytest
from playwright.sync_api import expect

from buckets import resources
from tests.console.served import serving
from tests.docs.built_site import build_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_site(tmp_path_factory.mktemp("docs"))


@pytest.fixture
def with_site(site, recorded, monkeypatch):
    """A console with the documentation."""
    monkeypatch.setattr(resources, "SITE", site)
    with serving(recorded) as served:
        yield served


@pytest.mark.slow
def test_the_documentation_is_one_click_away_and_can_be_searched(open_page, with_site):
    page = open_page()
    page.goto(with_site.url)
    page.get_by_role("link", name="Help").click()
    expect(page).to_have_url(re.compile("/docs/$"))
    page.wait_for_load_state("load")
    page.keyboard.press("/")
    page.keyboard.type("snooze", delay=20)
    expect(page.get_by_role("option", name=re.compile("snooze", re.IGNORECASE)).first).to_be_visible()
    page.goto(f"{with_site.url}/docs/runbook.html")
    expect(page.get_by_role("heading", name="Runbook", level=1)).to_be_visible()


@pytest.mark.slow
def test_no_script_runs_in_the_documentation_but_its_own(with_site):
    policy = with_site.ask("/docs/guides/console.html").headers["content-security-policy"]
    scripts = policy.partition("script-src ")[2].partition(";")[0].split()
    assert scripts[0] == "'self'"
    assert all(source.startswith("'sha256-") for source in scripts[1:])
    assert "unsafe" not in " ".join(scripts)
    assert with_site.ask("/docs/nothing.html").status == 404
    assert with_site.ask("/docs/../resources.py").status == 404
    assert "script-src 'self';" in with_site.ask("/").headers["content-security-policy"]


def test_a_console_without_the_documentation_says_how_to_get_it(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "SITE", tmp_path)
    with serving(recorded) as served:
        answer = served.ask("/docs/")
        assert answer.status == 404
        assert "make docs" in answer.text
        assert "Help" not in served.ask("/").text
