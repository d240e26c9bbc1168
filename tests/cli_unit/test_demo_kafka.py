"""What the Kafka demo says in the end: when a changed rule came into force, and what became of every payment."""

import pytest

from buckets.cli.demo.demo_kafka import account_line, change_line


@pytest.mark.parametrize(
    ("in_force_ms", "first_alert_ms", "said"),
    [
        (None, None, "the change of the rule came too late for any payment"),
        (
            1250,
            None,
            "rules version 2: evaluates every payment from 250 ms on after the change was sent, "
            "and has raised no alert",
        ),
        (
            1250,
            1400,
            "rules version 2: evaluates every payment from 250 ms on after the change was sent; "
            "first alert after 400 ms",
        ),
    ],
)
def test_it_says_when_the_change_was_in_force(in_force_ms, first_alert_ms, said):
    assert change_line(1, 1000, in_force_ms, first_alert_ms) == said


def test_an_account_is_an_equation():
    counts = {
        "events_in": 1005, "no_key": 0, "filtered": 1, "evaluated": 1000, "late": 4, "too_late": 0, "duplicates": 0,
        "collisions_not_kept": 0, "dead_letters": 0, "alerts": 3,
    }  # fmt: skip
    assert account_line("payer", counts).startswith(
        "payer: 1,005 in = 0 without a key + 1 filtered out + 1,000 evaluated + 4 late + 0 too"
    )
