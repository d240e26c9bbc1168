"""Events written in Avro, read by the schema that they were written with: fastavro reads messages, this makes columns.

avro_type      a schema as types, and what fastavro is given to read by
avro_events    messages as events, with and without the prefix of a registry
"""

from buckets.extras import check_format

check_format("avro")
