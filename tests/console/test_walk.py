"""A newcomer's walk by the console alone: a limit is changed, tried, released for some; what it caught is judged."""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.kafka.demo_process import Demo

PATIENCE_MS = 180_000
"""For a job that has to catch up, or to catch something."""
ADDRESS = re.compile(r"in a browser: (http://\S+)")


def answers(address: str) -> bool:
    """Whether a console answers there."""
    try:
        urlopen(address).close()
    except OSError:
        return False
    return True


@pytest.fixture
def demo(tmp_path):
    """The demo on Kafka, with time for a walk beside it."""
    with Demo(tmp_path, "--rate", "200", "--seconds", "300") as running:
        running.wait_until(lambda: ADDRESS.search(running.said) and answers(ADDRESS.search(running.said)[1]))
        yield running


@pytest.fixture
def keep(request, page):
    """Keeps a picture of the page, where pictures are wanted."""
    folder = request.config.getoption("--pictures")

    def picture(name: str) -> None:
        if folder is not None:
            page.screenshot(path=Path(folder) / f"walk-{name}.png")

    return picture


def release(page: Page, step: str, reason: str) -> None:
    """Take a step, after what it does was shown."""
    page.get_by_role("link", name=step, exact=True).click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name="Change 1 rule").click()
    expect(page.get_by_role("status").first).to_contain_text("changed")


@pytest.mark.nightly
def test_a_limit_is_changed_tried_released_and_judged(demo, page, keep):
    home = ADDRESS.search(demo.said)[1]
    page.set_default_timeout(PATIENCE_MS)
    page.goto(home)
    expect(page.get_by_role("heading", name="Latest alerts")).to_be_visible(timeout=PATIENCE_MS)
    keep("now")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Rules").click()
    page.get_by_role("link", name="card-five-in-five-minutes").first.click()
    page.get_by_role("link", name="Edit", exact=True).click()
    text = page.locator("#text")
    changed = (
        text.input_value().replace("card-five-in-five-minutes", "card-three-in-five-minutes").replace("'5'", "'3'")
    )
    text.fill(changed)
    expect(page.locator("#checked")).to_contain_text("valid")
    keep("edit")

    page.get_by_label("Values to try").fill("limit=2,3,4,5")
    page.get_by_role("button", name="Backtest").click()
    expect(page.get_by_role("region", name="Numbers").locator("tbody tr")).to_have_count(4, timeout=PATIENCE_MS)
    keep("backtest")
    page.go_back()

    text.fill(changed)
    page.get_by_role("button", name="Save as a draft").click()
    page.get_by_label("Reason").fill("three catch more, as the backtest says")
    page.get_by_role("button", name="Change 1 rule").click()
    expect(page.get_by_role("status").first).to_contain_text("changed")
    release(page, "Promote to SHADOW", "to see what it would raise")
    release(page, "Promote for 10 % of keys", "it raised what was expected")
    expect(page.get_by_role("heading", level=1)).to_contain_text("10%")
    keep("released")

    page.goto(f"{home}/alerts?rule=card-three-in-five-minutes")
    caught = page.get_by_role("region", name="Alerts").locator("tbody tr")
    expect(caught.first).to_be_visible(timeout=PATIENCE_MS)
    caught.first.locator("td.mono a").first.click()
    expect(page.locator("#explanation .drawn").first).to_be_visible(timeout=PATIENCE_MS)
    keep("caught")
    page.get_by_label("Note").fill("the card was stolen")
    page.get_by_role("button", name="Fraud", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("fraud")
    page.goto(f"{home}/rule?id=card-three-in-five-minutes")
    expect(page.get_by_role("img", name=re.compile("95 % confidence"))).to_be_visible()
    keep("judged")
