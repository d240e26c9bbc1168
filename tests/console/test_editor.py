"""A rule as it is written: completed, checked, tested and tried, saved as a draft and taken into force."""

import re

from deltalake import DeltaTable
from playwright.sync_api import expect

from buckets.config.job import load_job
from buckets.rule_files.yaml_rules import load_rules
from tests.console.job_folder import EVIL


def rules_of(conf):
    return {rule.rule_id: rule for rule in load_rules(conf.parent / "rules.yaml", load_job(conf).event_schema)}


def confirm(page):
    page.get_by_label("Reason").fill("as agreed")
    page.get_by_role("button", name=re.compile("^Change ")).click()
    expect(page.get_by_role("status").first).to_contain_text("changed")


def test_what_is_typed_is_checked_and_tested(page, shown):
    page.goto(shown.url + "/rule/edit?id=often")
    checked, text = page.locator("#checked"), page.locator("#text")
    expect(checked).to_contain_text("valid")
    expect(checked).to_contain_text("1 of 1 tests pass")
    text.fill(text.input_value().replace("'2'", "'4'"))
    expect(checked).to_contain_text("test failed: three payments in an hour")
    text.fill(text.input_value().replace("count", "cuont"))
    expect(checked.get_by_role("alert")).to_contain_text("cuont")
    assert "/tmp" not in checked.inner_text()
    text.fill(f"rules: [{EVIL}")
    expect(checked.get_by_role("alert")).to_contain_text("Line 1: broken YAML")
    assert "evil" not in page.title()
    text.fill("rules:\n  - {rule_id: r, group_by: [payer], aggregate: {function: count}, window: {length: 1h}, "
              "limit: {operator: '>=', value: '0'}}")  # fmt: skip
    expect(checked.locator(".tag.high, .tag.medium").first).to_be_visible()


def test_names_are_completed_from_the_schema(page, shown):
    page.goto(shown.url + "/rule/edit")
    text = page.locator("#text")
    text.fill("rules:\n  - rule_id: mine\n    gro")
    text.press("Control+Space")
    expect(page.get_by_role("option").first).to_have_text("group_by:")
    text.press("Enter")
    assert text.input_value().endswith("    group_by: ")
    text.fill("rules:\n  - rule_id: mine\n    aggregate:\n      function: s")
    text.press("Control+Space")
    assert "sum" in page.get_by_role("option").all_inner_texts()
    text.press("Escape")
    expect(page.get_by_role("option")).to_have_count(0)


def test_a_draft_is_saved_and_does_not_replace_what_is_in_force(page, changing, copied):
    page.goto(changing.url + "/rule/edit?id=large")
    text = page.locator("#text")
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_role("alert")).to_contain_text("give the draft a rule_id of its own")
    page.go_back()
    text.fill(text.input_value().replace("rule_id: large", "rule_id: larger").replace("'100'", "'500'"))
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.locator("main")).to_contain_text("it is saved but not in force")
    assert "larger" not in rules_of(copied)
    confirm(page)
    rule = rules_of(copied)["larger"]
    assert (rule.state, rule.limit.value) == ("DRAFT", 500)
    expect(page.get_by_role("link", name="Promote to SHADOW")).to_be_visible()


def test_a_rule_is_taken_as_it_is_written(page, changing, copied):
    page.goto(changing.url + "/rule/edit?id=large")
    text = page.locator("#text")
    text.fill(text.input_value().replace("'100'", "'120'"))
    page.get_by_role("button", name="Activate now").click()
    expect(page.locator("main")).to_contain_text("100 → ")
    confirm(page)
    assert rules_of(copied)["large"].limit.value == 120


def test_a_backtest_outlives_its_tab_and_shows_other_numbers(page, open_page, changing, copied, faults_of):
    page.goto(changing.url + "/rule/edit?id=large")
    page.get_by_label("Values to try").fill("limit=40,60,80,100")
    page.get_by_role("button", name="Backtest").click()
    page.wait_for_url("**/question?id=**")
    address = page.url
    page.close()
    again = open_page()
    again.goto(address)
    table = again.get_by_role("region", name="Numbers")
    expect(table.locator("tbody tr")).to_have_count(4, timeout=120_000)
    expect(table).to_contain_text("as written")
    expect(again.locator("rect.column")).to_have_count(4)
    counts = [int(text) for text in again.locator("tbody td:nth-child(2)").all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    assert faults_of(again) == []
    again.goto(changing.url + "/rule?id=large")
    expect(again.get_by_text("What large would have raised")).to_be_visible()


def test_a_replay_says_whether_all_came_out_again_and_what_did_not(page, changing, copied, faults_of):
    def replay(begin: str = "") -> None:
        page.goto(changing.url + "/batches")
        page.get_by_label("From").fill(begin)
        page.get_by_role("button", name="Replay").click()

    replay("soon")
    expect(page.locator("main")).to_contain_text("soon")
    replay()
    expect(page.get_by_role("heading", name="Everything recorded came out again")).to_be_visible(timeout=120_000)
    assert faults_of(page) == []
    table = DeltaTable(copied.parent / "tables" / "alerts")
    table.update(updates={"event": "'{}'"}, predicate="rule_id = 'often'")
    replay("2026-01-01")
    expect(page.get_by_role("heading", name="Some rows differ from what was recorded")).to_be_visible(timeout=120_000)
    expect(page.locator("pre.diff").first).to_contain_text("event: recorded {}, came out")
    assert faults_of(page) == []
    page.goto(changing.url + "/batches")
    expect(page.get_by_role("link", name="Replay from 2026-01-01")).to_be_visible()


def test_a_question_is_cancelled_and_another_one_that_cannot_be_asked_says_why(page, changing):
    page.goto(changing.url + "/rule/edit?id=large")
    page.get_by_role("button", name="Backtest").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_contain_text("cancelled")
    page.goto(changing.url + "/rule/edit?id=large")
    page.get_by_label("Values to try").fill("limitt=4")
    page.get_by_role("button", name="Backtest").click()
    expect(page.locator(".no")).to_contain_text("limitt", timeout=60_000)


def test_the_editor_is_for_everybody(open_page, shown, faults_of):
    page = open_page(viewport={"width": 360, "height": 740})
    page.goto(shown.url + "/rule/edit?id=often")
    expect(page.locator("#checked")).to_contain_text("valid")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert faults_of(page) == []
