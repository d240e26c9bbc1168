"""Drafted tests as the YAML of a rule file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from buckets.duration import LONGEST_MS, MS_PER_UNIT
from buckets.evaluation import Results
from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.moment import iso_text
from buckets.rule_tests.event_rows import EventRow
from buckets.yaml_dialect import InBraces, write_yaml

_EXACT = Context(prec=60)
"""Digits enough for any value."""


@dataclass(frozen=True)
class DraftedTest:
    """A test that has been run."""

    name: str
    rows: Sequence[EventRow]
    results: Results


def tests_text(tests: Sequence[DraftedTest], schema: EventSchema) -> str:
    """Return the part `tests` of a rule file, which expects what came out."""
    blocks = (write_yaml(_written(test, schema)).replace("\n", "\n    ") for test in tests)
    return "tests:\n" + "".join(f"  - {block}\n" for block in blocks)


def _written(test: DraftedTest, schema: EventSchema) -> dict[str, Any]:
    id_field, time_field = schema.event_id, schema.event_time.field
    times, _ = conversion.times_ms(pa.array([row[time_field] for row in test.rows]), schema.event_time)
    start_ms = int(times.min())
    relative = "at" not in schema.field_names and int(times.max()) - start_ms <= LONGEST_MS
    fields = [name for name in schema.field_names if name not in (id_field, time_field)]
    shared = {
        name: test.rows[0][name]
        for name in fields
        if name in test.rows[0] and all(row.get(name) == test.rows[0][name] for row in test.rows)
    }
    given = []
    for row, time_ms in zip(test.rows, times.tolist(), strict=True):
        own = {name: row[name] for name in fields if name in row and name not in shared}
        time = {"at": _offset(time_ms - start_ms)} if relative else {time_field: row[time_field]}
        given.append(InBraces({id_field: row[id_field]} | own | time))
    return {
        "name": test.name,
        **({"start": iso_text(start_ms)} if relative else {}),
        **({"defaults": InBraces(shared)} if shared else {}),
        "given": given,
        "expect": _expected(test, [row[id_field] for row in test.rows]),
    }


def _offset(milliseconds: int) -> str:
    """Return a time counted from the start, as in `1d + 2h`."""
    steps = []
    for unit in ("d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, MS_PER_UNIT[unit])
        steps += [f"{number}{unit}"] if number else []
    return " + ".join(steps) or "0s"


def shortest(value: Decimal) -> Decimal:
    """Return a value without zeros at the end of its digits after the point."""
    whole = value.to_integral_value()
    return whole if whole == value else value.normalize(_EXACT)


def _expected(test: DraftedTest, ids: Sequence[str]) -> dict[str, Any]:
    """Return what came out, as expectations."""
    alerts, collisions = test.results.alerts.to_pylist(), test.results.collisions
    references = _references(ids)
    expected: dict[str, Any] = {
        "alerts": [
            InBraces({"event": references[row["position"]], "value": format(shortest(row["value"]), "f")})
            for row in alerts
        ]
    }
    tables = {
        "late_events": test.results.late_events,
        "duplicates": test.results.duplicates,
        "collisions_not_kept": collisions.filter(pc.invert(collisions["kept"])),
    }
    positions = {name: sorted(set(table["position"].to_pylist())) for name, table in tables.items()}
    return expected | {name: [references[at] for at in places] for name, places in positions.items() if places}


def _references(ids: Sequence[str]) -> list[str]:
    """Return how a test names each of its events: by its id, or by its number where the id is not clear."""
    times = Counter(ids)
    return [str(at) if times[event_id] > 1 or event_id.isdecimal() else event_id for at, event_id in enumerate(ids, 1)]
