"""A recorded job for all tests, a copy of it for tests that change something, and a real browser."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.job_folder import write_job
from tests.console.served import Served, serving

CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(__file__).with_name("axe.min.js")
FLAGS = ["--no-sandbox", "--disable-gpu"]
PATIENCE_MS = 30_000  # a machine that tests on all its cores is slow
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory) -> Path:
    """The configuration of a job that has run; not to be changed."""
    return write_job(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def copied(recorded, tmp_path) -> Path:
    """The same to be changed."""
    shutil.copytree(recorded.parent, tmp_path / "job")
    conf = tmp_path / "job" / "conf.yaml"
    return conf


@pytest.fixture(scope="session")
def shown(recorded) -> Iterator[Served]:
    """A console of the recorded job."""
    with serving(recorded) as served:
        yield served


@pytest.fixture
def changing(copied) -> Iterator[Served]:
    """A console of a job that may be changed."""
    with serving(copied) as served:
        yield served


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's browser, which is installed where it is missing."""
    if not CHROMIUM.exists():
        if os.geteuid() != 0:
            pytest.fail(f"{CHROMIUM} is missing; install it as root: apt-get install chromium")
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a browser of its own; at the end none may have complained."""
    contexts, complaints = [], []

    def opened(**options) -> Page:
        context = chromium.new_context(**({"viewport": {"width": 1300, "height": 900}} | options))
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        return page

    yield opened
    for context in contexts:
        context.close()
    # Pages of errors are no success, and a console may end before the page that follows it.
    unexpected = [line for line in complaints if "Failed to load" not in line and "sse:error" not in line]
    assert unexpected == []


@pytest.fixture
def page(open_page) -> Page:
    return open_page()


@pytest.fixture(scope="session")
def faults_of() -> Callable[[Page], list[str]]:
    """Says what is wrong with a page for people who see or hear it otherwise, as far as a program can tell."""

    def faults(page: Page) -> list[str]:
        # The policy of the console allows no script of others, so it comes by the debugger's door.
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
        return [
            f"{each['impact']} {each['id']}: {node['html'][:150]}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    return faults
