"""Events written in Avro, read by the schema that they were written with: fastavro reads messages, this makes columns.

avro_type      a schema as types, and what fastavro is given to read by
columns        the declared fields of records as columns of Arrow
avro_events    messages as events, with and without the prefix of a registry
event_schema   an event schema to begin with
"""

from buckets.extras import check_format

check_format("avro")
