"""Pages that follow a job while it runs."""

import time
from datetime import timedelta

import pytest
from deltalake import DeltaTable, write_deltalake
from playwright.sync_api import expect

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.clock import epoch_ms
from buckets.monitor.live import LiveStatus
from buckets.monitor.query_news import QueryNews
from tests.console.served import serving
from tests.core.done_batches import batch


@pytest.fixture
def live(copied):
    """A job that runs, as its status says."""
    rules = RuleVersions(copied.parent / "checkpoint").latest_rule_set()
    with LiveStatus(
        copied.parent / "checkpoint", lambda: rules, lambda: QueryNews({("payments", "0"): 7}), every_s=0.1
    ) as status:
        yield status


def test_figures_and_charts_follow_the_job(page, live, copied, faults_of):
    with serving(copied) as served:
        live.on_batch(batch(events=600, written_ms=epoch_ms(), ingested=[(epoch_ms() - 150, 600.0)]))
        page.goto(served.url)
        expect(page.locator(".job")).to_contain_text("live")
        events = page.locator(".card").filter(has_text="Events since the start").locator(".big")
        expect(events).to_have_text("600")
        live.on_batch(batch(events=50, written_ms=epoch_ms(), batch_id=1))
        expect(events).to_have_text("650")
        expect(page.locator(".card").filter(has_text="Events a second")).to_contain_text("lag 7")
        expect(page.locator(".chart canvas")).to_have_count(4)
        assert faults_of(page) == []


def test_a_page_that_was_there_before_the_job_begins_to_follow_it(page, copied):
    with serving(copied) as served:
        page.goto(served.url)
        expect(page.get_by_text("no job runs now")).to_be_visible()
        rules = RuleVersions(copied.parent / "checkpoint").latest_rule_set()
        with LiveStatus(copied.parent / "checkpoint", lambda: rules, every_s=0.1):
            expect(page.locator(".job")).to_contain_text("live")
            expect(page.locator("[data-chart]")).to_have_count(4)


def test_what_is_wrong_is_one_red_line(page, copied):
    rules = RuleVersions(copied.parent / "checkpoint").latest_rule_set()
    status = LiveStatus(
        copied.parent / "checkpoint", lambda: rules, rules_fault=lambda: "the topic is gone", every_s=0.1
    )
    with serving(copied) as served:
        page.goto(served.url)
        expect(page.get_by_role("alert")).to_contain_text("the rules may be out of date: the topic is gone")
        status.close("disk is full")
        expect(page.get_by_role("alert").first).to_contain_text("it failed at")
        expect(page.get_by_role("alert").first).to_contain_text("disk is full")


def test_alerts_come_as_they_are_written_and_a_selection_stands_still(page, changing, copied):
    table = copied.parent / "tables" / "alerts"
    page.goto(changing.url + "/alerts?rule=often")
    first = page.locator("tbody td:nth-child(3) a").first
    shown = first.inner_text()
    newest = DeltaTable(table).to_pyarrow_table(filters=[("rule_id", "=", "often")]).slice(0, 1)

    def write(alert_id: str, later_us: int) -> None:
        at = newest.schema.get_field_index("event_time")
        moments = newest["event_time"].to_pylist()
        moved = newest.set_column(at, newest.field(at), [[moments[0] + timedelta(days=30, microseconds=later_us)]])
        at = newest.schema.get_field_index("alert_id")
        write_deltalake(table, moved.set_column(at, newest.field(at), [[alert_id]]), mode="append")

    write("a" * 32, 0)
    expect(first).to_have_text("aaaaaaaa")
    page.locator("input[name=alert]").first.check()
    write("b" * 32, 1000)
    time.sleep(2.5)
    expect(first).to_have_text("aaaaaaaa")
    page.locator("input[name=alert]").first.uncheck()
    write("c" * 32, 2000)
    expect(first).to_have_text("cccccccc")
    assert shown not in ("aaaaaaaa", "cccccccc")


def test_a_stream_ends_with_its_tab(open_page, live, copied):
    with serving(copied) as served:
        pages = [open_page() for _ in range(3)]
        for page in pages:
            page.goto(served.url)
            expect(page.locator(".job")).to_contain_text("live")
        for page in pages:
            page.close()
        assert served.ask("/samples").status == 200
