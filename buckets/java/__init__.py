"""Java and jars: the Java to use, and the jars of Spark, Delta and Kafka, pinned by hash.

Runs with a bare Python (`bin/setup` calls it before anything is installed), so it imports only the standard library,
and `errors`.
"""
