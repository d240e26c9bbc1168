"""Events written in Protocol Buffers, read by the schema that they were written with: the vendor's runtime reads them.

proto_schema      a schema with what it imports, and its messages
wanted            the fields that an event schema declares, found in a message by name or number
protobuf_events   messages as events, with and without the prefix of a registry
"""
