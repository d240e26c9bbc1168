"""Events in Avro, read by the schema that they were written with: fastavro decodes messages, this makes columns.

avro_type      a schema as types, and the schema that fastavro reads by
avro_events    messages as events, with and without the prefix of a registry
"""

from buckets.extras import check_format

check_format("avro")
