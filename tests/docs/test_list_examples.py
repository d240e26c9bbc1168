"""The lists and the rules of the page on lists, evaluated together as the page says they are."""

from datetime import datetime

import pyarrow as pa
import pytest

import buckets
from buckets.resources import resource
from tests.docs.blocks import PAGES, blocks_of

PAGE = {block.title or block.line: block.text for block in blocks_of((PAGES / "guides/lists.md").read_text())}


def alerts(folder, rule_id: str, events: list[dict]) -> list[str]:
    """The events for which a rule of the page fires, with the lists of the page; each payment is of 6,000."""
    for title, text in PAGE.items():
        if isinstance(title, str):
            (folder / title).write_text(text)
    (text,) = (text for text in PAGE.values() if f"rule_id: {rule_id}\n" in text)
    (folder / "rules.yaml").write_text(text)
    is_with_ip = "ip" in events[0]
    schema = buckets.load_event_schema(
        folder / "payment-schema.yaml" if is_with_ip else resource("schemas/transaction.yaml")
    )
    names = ("payerId", "beneficiaryId", "ip") if is_with_ip else ("payerId", "beneficiaryId", "paymentType")
    columns = {name: pa.array([event.get(name, "p1") for event in events]) for name in names}
    columns |= {schema.event_id: pa.array([str(number) for number in range(len(events))])}
    columns |= {"eventTime": pa.array([int(event["at"].timestamp() * 1000) for event in events])}
    columns |= {"paymentAmount": pa.array(["6000"] * len(events))}
    (rule,) = buckets.load_rules(folder / "rules.yaml", schema)
    lists = {name: buckets.load_list(folder / f"{name}.csv") for name in rule.lists if f"{name}.csv" in PAGE}
    other = folder / "other.csv"
    other.write_text("network\n192.0.2.0/24\n" if "blocked_networks" in rule.lists else "key\n2026-12-25\n")
    lists |= {name: buckets.load_list(other) for name in rule.lists - lists.keys()}
    found = buckets.evaluate(pa.table(columns), [rule], schema, lists=lists).alerts
    return found["event_id"].to_pylist()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_the_most_specific_network_decides_until_it_expires(tmp_path):
    events = [
        {"ip": "198.51.100.7", "at": at("2026-12-31T23:30:00Z")},
        {"ip": "198.51.100.65", "at": at("2026-12-31T23:59:00Z")},
        {"ip": "198.51.100.65", "at": at("2027-01-01T00:00:00Z")},
        {"ip": "192.0.2.1", "at": at("2027-01-01T00:01:00Z")},
        {"ip": "203.0.113.9", "at": at("2027-01-01T00:02:00Z")},
    ]
    assert alerts(tmp_path, "from-a-proxy", events) == ["2", "4"]


def test_pairs_that_are_approved_may_pay_more(tmp_path):
    pairs = (("p1", "b00001"), ("p1", "b01587"), ("p2", "b00001"), ("p1", "b00001"))
    events = [{"payerId": payer, "beneficiaryId": to, "at": at("2026-12-31T23:59:00Z")} for payer, to in pairs]
    assert alerts(tmp_path, "unknown-pair", events) == ["2", "3"]


@pytest.mark.parametrize(
    ("moment", "is_closed"),
    [
        ("2026-07-20T09:59:59+02:00", False),  # a Monday
        ("2026-07-20T11:00:00+02:00", True),
        ("2026-07-21T10:00:00+02:00", True),
        ("2026-07-24T09:00:00+02:00", False),  # a Friday
        ("2026-12-25T09:00:00+01:00", True),  # one that is a holiday
    ],
)
def test_the_office_is_closed_outside_the_hours_of_the_list_and_on_holidays(tmp_path, moment, is_closed):
    assert alerts(tmp_path, "outside-opening-hours", [{"at": at(moment)}]) == (["0"] if is_closed else [])
