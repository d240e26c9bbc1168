"""How many alerts rules have, in tables of a job and of an audit."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from buckets.duration import DAY_MS
from buckets.outputs.recorded_outputs import alerts_by_day

FIRST = datetime(2026, 3, 2, 23, 59, 59, 999_000, tzinfo=UTC)
DAY = int(FIRST.timestamp()) * 1000 // DAY_MS


@pytest.mark.parametrize("is_audited", [False, True], ids=["job", "audit"])
def test_alerts_are_counted_by_the_day_of_their_event(tmp_path, is_audited):
    times = [FIRST, FIRST, datetime(2026, 3, 3, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC)]
    rows = {
        "rule_id": pa.array(["one", "two", "one", "one"]),
        "event_time": pa.array(times, pa.timestamp("us", "UTC")),
    }
    # An audit keeps a topic by the day on which a message arrived.
    arrived = {"day": pa.array([date(2026, 3, 10)] * len(times))} if is_audited else {}
    table = tmp_path / "alerts"
    write_deltalake(table, pa.table(rows | arrived), partition_by=list(arrived))
    assert alerts_by_day(table, 30) == {"one": {DAY: 1, DAY + 1: 1, DAY + 7: 1}, "two": {DAY: 1}}
    assert alerts_by_day(table, 7) == {"one": {DAY + 1: 1, DAY + 7: 1}}
    assert alerts_by_day(tmp_path / "none", 7) == {}
