"""The Spark adapter: everything that imports pyspark."""
