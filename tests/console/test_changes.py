"""What is done from pages, and what follows where the commands look."""

import re

import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from buckets.config.job import load_job
from buckets.rule_files.flink_rules import read_change_notes
from buckets.rule_files.yaml_rules import load_rules
from buckets.verdicts.verdict_table import load_verdicts, verdict_table


def rules_of(conf):
    return {rule.rule_id: rule for rule in load_rules(conf.parent / "rules.yaml", load_job(conf).event_schema)}


def confirm(page, reason="as agreed"):
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name=re.compile("^Change ")).click()
    expect(page.get_by_role("status")).to_contain_text("changed")


def test_a_verdict_on_several_alerts_carries_the_name(page, changing, copied):
    page.goto(changing.url + "/alerts?rule=often")
    boxes = page.locator("input[name=alert]")
    for at in (0, 1):
        boxes.nth(at).check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_label("Note").fill("called <b>the payer</b>")
    page.get_by_role("button", name="Fraud").click()
    expect(page.get_by_role("status")).to_have_text("2 alerts: fraud")
    expect(page.locator(".verdict.fraud")).to_have_count(2)
    given = load_verdicts(verdict_table(load_job(copied)))
    assert {(each.verdict, each.by, each.note, each.rule_id) for each in given} == {
        ("fraud", "ann", "called <b>the payer</b>", "often")
    }
    page.goto(changing.url + "/alerts?verdict=fraud")
    assert page.locator("tbody tr").count() >= 2
    page.goto(changing.url + "/rule?id=often")
    expect(page.locator("main")).to_contain_text("34 % to 100 %")
    page.goto(changing.url + "/verdicts")
    expect(page.get_by_role("region", name="Verdicts").locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("region", name="Verdicts")).to_contain_text("called <b>the payer</b>")
    page.goto(changing.url + "/quality")
    often = page.get_by_role("region", name="Quality of rules").locator("tr").filter(has_text="often")
    expect(often).to_contain_text("2 of 2")


def test_a_verdict_on_an_alert(page, changing):
    page.goto(changing.url + "/alerts?rule=large")
    page.locator("tbody td:nth-child(3) a").first.click()
    page.get_by_role("button", name="Legitimate").click()
    expect(page.locator(".verdict.legitimate").first).to_be_visible()
    expect(page.locator("main")).to_contain_text("by ann")


def test_nothing_selected_is_said(page, changing):
    page.goto(changing.url + "/alerts")
    page.get_by_role("button", name="Fraud").click()
    expect(page.get_by_role("alert")).to_contain_text("No alert is selected")


@pytest.mark.parametrize(
    ("rule", "button", "state"),
    [("large", "Pause", "PAUSE"), ("large", "Put on trial", "SHADOW"), ("trial", "Pause", "PAUSE")],
)
def test_a_rule_gets_another_state(page, changing, copied, rule, button, state):
    page.goto(f"{changing.url}/rule?id={rule}")
    page.get_by_role("link", name=button, exact=True).click()
    expect(page.locator("main")).to_contain_text(f"→ {state}")
    assert rules_of(copied)[rule].state != state, "a preview changes nothing"
    confirm(page)
    expect(page.locator("h1 .tag").first).to_have_text(state)
    assert rules_of(copied)[rule].state == state
    note = read_change_notes([copied.parent / "rules.yaml"])[rule]
    assert (note.author, note.reason) == ("ann", "as agreed")


def test_a_rule_is_released_step_by_step(page, changing, copied):
    page.goto(f"{changing.url}/rule?id=draft")
    page.get_by_role("link", name="Promote to SHADOW").click()
    confirm(page)
    page.get_by_role("link", name="Promote for 10 % of keys").click()
    expect(page.locator("main")).to_contain_text("for 10% of keys")
    confirm(page)
    expect(page.locator("h1 .tag").first).to_have_text("ACTIVE with rollout 10%")
    page.get_by_role("link", name="Promote to ACTIVE").click()
    confirm(page, "good enough")
    assert rules_of(copied)["draft"].state == "ACTIVE"


def test_a_key_is_snoozed_and_the_snooze_ended(page, changing, copied):
    page.goto(f"{changing.url}/rule?id=large")
    page.get_by_label("Key").fill("payer=p1")
    page.get_by_label("Until").fill("24h")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("Alerts for payer p1 are not raised")
    confirm(page, "moves house")
    (snooze,) = rules_of(copied)["large"].snoozes
    assert (snooze.key, snooze.reason, snooze.author) == ({"payer": "p1"}, "moves house", "ann")
    page.get_by_role("link", name="End").click()
    confirm(page, "has moved")
    (snooze,) = rules_of(copied)["large"].snoozes
    expect(page.get_by_text("over", exact=True)).to_be_visible()


@pytest.mark.parametrize(("key", "until", "line"), [("nobody=1", "24h", "payer"), ("", "soon", "is not a time")])
def test_a_snooze_that_does_not_fit_is_said(page, changing, key, until, line):
    page.goto(f"{changing.url}/rule?id=large")
    page.get_by_label("Key").fill(key)
    page.get_by_label("Until").fill(until)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text(line)


def test_all_rules_go_back_to_an_earlier_version(page, changing, copied):
    page.goto(f"{changing.url}/rule?id=large")
    expect(page.get_by_role("region", name="History")).to_contain_text("as before → A payer spends much")
    page.get_by_role("link", name="Roll back").first.click()
    expect(page.locator("main")).to_contain_text("All rules as they were in version 1")
    confirm(page, "it was better")
    assert rules_of(copied)["large"].description == "as before"


def test_two_tabs_do_not_overwrite_one_another(open_page, changing, copied):
    one, other = open_page(), open_page()
    for tab in (one, other):
        tab.goto(f"{changing.url}/rules/change?what=pause&id=large")
    confirm(one)
    other.get_by_label("Reason").fill("me too")
    other.get_by_role("button", name="Change 1 rule").click()
    expect(other.get_by_role("alert")).to_contain_text("Somebody has changed the rules")


def test_nothing_to_change_is_said(page, changing):
    page.goto(f"{changing.url}/rules/change?what=resume&id=large")
    expect(page.locator("main")).to_contain_text("already has.")
    expect(page.get_by_role("button", name="Change 0 rules")).to_be_disabled()


def test_only_rules_and_verdicts_are_written(changing, copied):
    """Whoever only looks leaves the tables of the job as they are."""
    tables = sorted(path for path in (copied.parent / "tables").iterdir() if (path / "_delta_log").is_dir())
    before = {path.name: DeltaTable(path).version() for path in tables}
    for path in ("/", "/alerts?kind=all", "/rules", "/rule?id=large", "/rules/change?what=pause&id=large"):
        assert changing.ask(path).status == 200
    assert {path.name: DeltaTable(path).version() for path in tables} == before
