"""A small seeded stream of payments: late, repeated and colliding ones among them."""

import random
from typing import Any

from buckets.events.schema import EventSchema

SCHEMA: dict[str, Any] = {
    "name": "payment",
    "event_id": "id",
    "event_time": {"field": "t", "unit": "ms"},
    "attributes": {"payer": "string", "kind": "string"},
    "measures": {"amount": {"scale": 2}},
}
EVENT_SCHEMA = EventSchema.model_validate(SCHEMA)
RULES: list[dict[str, Any]] = [
    {
        "rule_id": "payer-sum",
        "group_by": ["payer"],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "1s"},
        "limit": {"operator": ">", "value": "60"},
    },
    {
        "rule_id": "card-count",
        "state": "SHADOW",
        "group_by": ["payer"],
        "where": {"kind": "CARD"},
        "aggregate": {"function": "count"},
        "window": {"length": "500ms", "left": "open"},
        "limit": {"operator": ">=", "value": "2"},
    },
    {
        "rule_id": "all-average",
        "group_by": [],
        "aggregate": {"function": "avg", "measure": "amount"},
        "window": {"length": "300ms"},
        "limit": {"operator": "<", "value": "10"},
    },
]


def payments(count: int, seed: int = 5) -> list[dict[str, Any]]:
    """Events in arrival order, as written in JSON; times from 1 s before 1970."""
    dice = random.Random(seed)
    events: list[dict[str, Any]] = []
    clock_ms = -1_000
    for number in range(count):
        if events and dice.random() < 0.05:
            events.append(dice.choice(events[-5:]))
            continue
        time_ms = clock_ms + dice.choice([0, 20, 50, 50, 100, 200, -30, -150])
        clock_ms = max(clock_ms, time_ms)
        events.append(
            {
                "id": f"p{number}",
                "t": time_ms,
                "payer": dice.choice(["ann", "bob", "zoë"]),
                "kind": dice.choice(["CARD", "CASH"]),
                "amount": f"{dice.randrange(-1000, 4000) / 100:.2f}",
            }
        )
    return events
