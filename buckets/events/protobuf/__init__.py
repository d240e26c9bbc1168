"""Events in Protocol Buffers, read by the schema that they were written with: the vendor's runtime decodes them.

proto_schema      a schema with its imports, and its messages
wanted            declared fields, found in a message by name or number
protobuf_events   messages as events, with and without the prefix of a registry
"""
