"""Payloads, which travel between the stages: Arrow tables as bytes, with one byte of header.

The byte says which kind of payload follows: an Arrow IPC stream, or JSON for counts. A Spark row carries a whole
payload, so rows cost nothing per event.
"""

import pyarrow as pa

EVENTS, DEAD_LETTERS, COUNTS, ROWS, FILL, SHARD, SPILLED = b"E", b"D", b"C", b"R", b"F", b"S", b"L"
ARRIVED = b"A"
"""Events of a group, or rows that are made of them; dead letters; counts; rows where others are packed more tightly; a
word to a shard that it goes on with what is being filled; what a piece of arrivals sends to a shard (`shard_events`);
where a payload lies that is in a file; what a task has read, for the archive.
"""
PASSING = -1  # The shard of what is not scored
GROUP = b"group"


def pack(kind: bytes, table: pa.Table | pa.RecordBatch, group_id: str = "") -> bytes:
    """Pack a table into a payload."""
    schema = table.schema.with_metadata({GROUP: group_id.encode()})
    sink = pa.BufferOutputStream()
    sink.write(kind)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write(table.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()


def unpack(payload: bytes) -> pa.Table:
    """Unpack the table of a payload."""
    return pa.ipc.open_stream(pa.py_buffer(payload)[1:]).read_all()


def group_of(table: pa.Table) -> str:
    """Return the id of the group whose events the table holds."""
    return table.schema.metadata[GROUP].decode()
