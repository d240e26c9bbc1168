"""Workloads to predict, and constants that are simple enough to reckon with."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from buckets.size.constants import Constants, MemoryBytes, PerTerm, StoredBytes
from buckets.size.workload import Cluster, Grouping, Width, Workload

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STORED = StoredBytes(head=20, cell=4, track=3, bucket=8, bucket_track=7, slot=6, entry=76)
COSTS = PerTerm(**dict.fromkeys(PerTerm.model_fields, 1.0)).model_copy(update={"batches": 50_000.0, "cold": 50.0})
CONSTANTS = Constants(
    machine={"cpu": "one of tests"},
    fitted="by hand",
    python_us=COSTS,
    jvm_us=COSTS,
    collector=0.25,
    put_bytes=COSTS,
    stored=STORED,
    memory=MemoryBytes(driver=2e8, jvm=1e9, worker=1e8, touch=100),
    disk_bytes_s=1e9,
)


def grouping(**changes: Any) -> Grouping:
    return replace(Grouping("payer", 1, 10_000, 1, 1, DAY_MS, DAY_MS), **changes)


def workload(*groupings: Grouping, **changes: Any) -> Workload:
    known = Workload(
        groupings=groupings or (grouping(),),
        event_fields=3,
        conditions=1,
        rate=1_000,
        is_text=True,
        text_bytes=16,
        shards=16,
        tasks=4,
        cluster=Cluster(4, 1, 16 << 30),
        log_bytes=512 << 20,
        cache_bytes=256 << 20,
        interval_s=5.0,
    )
    return replace(known, **changes)


@st.composite
def groupings(draw: st.DrawFn) -> Grouping:
    horizon_ms = draw(st.integers(1_000, 30 * DAY_MS))
    tail_ms = draw(st.integers(0, horizon_ms))
    widths = (Width(tail_ms, horizon_ms, draw(st.integers(1, DAY_MS))),) if tail_ms < horizon_ms else ()
    return Grouping(
        name="some",
        fields=draw(st.integers(0, 4)),
        keys=draw(st.integers(1, 10**10)),
        tracks=draw(st.integers(0, 5)),
        features=draw(st.integers(0, 20)),
        horizon_ms=horizon_ms,
        tail_ms=tail_ms,
        widths=widths,
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    shards = draw(st.integers(1, 4096))
    return workload(
        *draw(st.lists(groupings(), min_size=1, max_size=5)),
        conditions=draw(st.integers(0, 20)),
        rate=draw(st.floats(0.001, 1e7)),
        is_text=draw(st.booleans()),
        text_bytes=draw(st.integers(1, 100)),
        shards=shards,
        tasks=draw(st.integers(1, shards)),
        cluster=Cluster(draw(st.integers(1, 10_000)), draw(st.integers(1, 100)), draw(st.none() | st.just(1 << 34))),
        log_bytes=draw(st.integers(0, 1 << 42)),
        cache_bytes=draw(st.integers(0, 1 << 42)),
        interval_s=draw(st.just(0.0) | st.floats(0.001, 3600)),
        most_rows=draw(st.none() | st.integers(1, 10**7)),
    )
