"""Every page in a real browser: what it shows, that it is for everybody, and that hostile texts stay texts."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.job_folder import EVIL, EVIL_RULE

PAGES = (
    "/",
    "/alerts?kind=all",
    "/rules",
    "/rule?id=large",
    "/rules/change?what=pause&id=large",
    "/key?field=payer&value=p1",
    "/lists",
    "/list?name=payroll",
    "/verdicts",
    "/batches?batch=1",
    "/nothing",
)


@pytest.fixture(scope="module")
def alert_of(shown):
    """The address of the newest alert of a rule."""

    def address(rule_id: str) -> str:
        text = shown.ask(f"/alerts?kind=all&rule={rule_id}").text
        return re.search(r'href="(/alert\?id=[^"]+)"', text)[1].replace("&amp;", "&")

    return address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_for_everybody(open_page, shown, faults_of, path, dark):
    page = open_page(color_scheme="dark" if dark else "light")
    page.goto(shown.url + path)
    assert faults_of(page) == []


def test_an_alert_is_for_everybody(page, shown, faults_of, alert_of):
    page.goto(shown.url + alert_of("often"))
    expect(page.get_by_text("matches the recorded values")).to_be_visible()
    assert faults_of(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone(open_page, shown, path):
    page = open_page(viewport={"width": 360, "height": 740})
    page.goto(shown.url + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_an_alert_fits_a_phone(open_page, shown, alert_of):
    page = open_page(viewport={"width": 360, "height": 740})
    page.goto(shown.url + alert_of("large"))
    expect(page.locator("#explanation svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_first_page_of_a_job_that_does_not_run(page, shown):
    page.goto(shown.url)
    expect(page.get_by_text("no job runs now; 3 batches are recorded")).to_be_visible()
    expect(page.locator(".card").filter(has_text="Events").first).to_contain_text("183")
    expect(page.locator(".chart canvas")).to_be_visible()
    expect(page.get_by_role("region", name="Rules in force")).to_contain_text("The sum of amount of events of the same")


def test_alerts_are_listed_newest_first_and_page_by_page(page, shown):
    page.goto(shown.url + "/alerts?kind=all")
    times = []
    while True:
        times += page.locator("tbody tr td:nth-child(2)").all_inner_texts()
        older = page.get_by_role("link", name="Older")
        if not older.count():
            break
        older.click()
        page.wait_for_load_state()
    assert times == sorted(times, reverse=True)
    assert len(times) > 50


def test_filters_are_in_the_address(page, shown):
    page.goto(shown.url + "/alerts")
    page.get_by_label("Rule").fill("often")
    page.get_by_label("Key").fill("p2")
    page.get_by_role("button", name="Show").click()
    assert "rule=often" in page.url
    assert "key=p2" in page.url
    rows = page.locator("tbody tr")
    expect(rows.first).to_be_visible()
    assert set(page.locator("tbody tr td:nth-child(4)").all_inner_texts()) == {"often"}
    assert set(page.locator("tbody tr td:nth-child(5)").all_inner_texts()) == {"payer p2"}
    page.goto(shown.url + "/alerts?kind=trial")
    assert set(page.locator("tbody tr td:nth-child(4)").all_inner_texts()) == {"trial"}
    page.goto(shown.url + "/alerts?severity=low")
    expect(page.get_by_text("No such alerts.")).to_be_visible()
    page.goto(shown.url + "/alerts?from=2026-01-02&to=2026-01-02T06:00Z")
    days = {text[:10] for text in page.locator("tbody tr td:nth-child(2)").all_inner_texts()}
    assert days == {"2026-01-02"}


def test_an_alert_is_explained(page, shown, alert_of):
    page.goto(shown.url + alert_of("large"))
    expect(page.locator("h1")).to_contain_text("large")
    expect(page.get_by_text("matches the recorded values")).to_be_visible()
    expect(page.locator("#explanation svg text.limit")).to_have_text("limit 100")
    expect(page.locator("#explanation")).to_contain_text("equal to the last digit")
    page.get_by_text("events of the window").click()
    assert page.locator("#explanation tbody tr").count() > 1
    page.get_by_label("Rule").select_option("trial")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("main")).to_contain_text("of rule trial")


def test_why_not_says_what_held_a_rule_back(page, shown):
    page.goto(shown.url + "/why?rule=large&event=e0")
    expect(page.locator("main")).to_contain_text("Rule large did not fire at event e0")
    expect(page.locator("main")).to_contain_text("not met")


def test_a_key_has_its_events_windows_and_how_near_rules_were(page, shown, faults_of):
    page.goto(shown.url + "/key")
    page.get_by_label("Field").select_option("payer")
    page.get_by_label("Value").fill("p2")
    page.get_by_role("button", name="Show").click()
    near = page.get_by_role("region", name="Rules at the last event")
    expect(near).to_contain_text("large")
    expect(near).to_contain_text("is not above 100 by")
    expect(page.locator("#key-events rect.column")).to_have_count(4)
    expect(page.locator("#key-events circle")).to_have_count(60)
    assert faults_of(page) == []
    page.goto(shown.url + "/key?field=payer&value=nobody")
    expect(page.get_by_text("The archive has no events of this key.")).to_be_visible()
    page.goto(shown.url + "/key?field=account&value=x")
    expect(page.get_by_role("alert")).to_contain_text("is a whole number")


def test_batches_have_their_accounts(page, shown):
    page.goto(shown.url + "/batches")
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("region", name="Groups of the batch")).to_contain_text("payer")
    cells = page.get_by_role("region", name="Groups of the batch").locator("tbody tr").first.locator("td")
    counts = [int(text) for text in cells.all_inner_texts()[1:9]]
    assert counts[0] == sum(counts[1:]) + 1, "all but the row that is not an event"


def test_lists_are_shown_as_the_job_has_them(page, shown):
    page.goto(shown.url + "/lists")
    expect(page.get_by_role("region", name="Lists")).to_contain_text("payroll.csv")
    expect(page.get_by_role("region", name="Lists")).to_contain_text("not read by a batch yet")
    page.get_by_role("link", name="payroll").click()
    expect(page.locator("main")).to_contain_text("Edit this list at its source")
    page.get_by_role("textbox", name="Key").fill("p1")
    page.get_by_role("button", name="Look up").click()
    expect(page.locator("main")).to_contain_text("no batch has seen it yet; run the job")


def test_hostile_texts_are_texts(page, shown):
    page.goto(shown.url + "/rules")
    expect(page.get_by_text(EVIL_RULE, exact=True)).to_be_visible()
    page.get_by_text(EVIL_RULE, exact=True).click()
    expect(page.locator("h1")).to_contain_text(EVIL_RULE)
    expect(page.get_by_text(EVIL, exact=True)).to_be_visible()
    page.get_by_role("link", name="See all").click()
    expect(page.locator("tbody")).to_contain_text(EVIL)
    assert "\u202e" not in page.content()
    page.locator("tbody a.none, tbody td:nth-child(3) a").first.click()
    expect(page.get_by_text("matches the recorded values")).to_be_visible()
    assert "evil" not in page.title()
    assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0


def test_all_is_done_with_a_keyboard(page, shown):
    page.goto(shown.url)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/alerts")
    page.keyboard.press("/")
    expect(page.locator("select[name=kind]")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("often")
    page.keyboard.press("Enter")
    page.wait_for_url("**rule=often**")
    box = page.get_by_label("Select all of this page")
    box.focus()
    page.keyboard.press("Space")
    expect(page.get_by_text("selected; the list stands still")).to_be_visible()


def test_a_page_is_read_without_scripts(open_page, shown, alert_of):
    page = open_page(java_script_enabled=False)
    page.goto(shown.url + "/alerts")
    assert page.locator("tbody tr").count() > 10
    page.goto(shown.url + alert_of("often"))
    expect(page.locator(".sentence").first).to_contain_text("The number of events")


def test_a_page_prints_what_it_says(page, shown):
    page.goto(shown.url + "/alerts")
    page.emulate_media(media="print")
    assert not page.locator("nav").first.is_visible()
    assert not page.locator("#verdicts").is_visible()
    assert page.locator("tbody tr").first.is_visible()
