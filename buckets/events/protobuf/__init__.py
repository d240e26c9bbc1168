"""Events written in Protocol Buffers, read by the schema that they were written with, and only what is asked for.

proto_tokens, proto_text   a `.proto` file as a descriptor
proto_schema               a schema with what it imports, and its messages
wanted                     the fields that an event schema declares, found in a message by name or number
program                    what of a message is wanted, as flat arrays
wire                       a compiled loop that goes through messages by a program and says where the wanted values lie
columns                    wanted values as columns of Arrow
decoder                    all of this for one message
"""
