"""Events written in Avro, read by the schema that they were written with, and only what is asked for.

avro_type    a schema, read from its JSON
program      what of it is wanted, as flat arrays
scan         a compiled loop that goes through messages by a program and says where the wanted values lie
columns      wanted values as columns of Arrow
decoder      all of this for one schema
"""
