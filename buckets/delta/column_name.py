"""Names of columns in the SQL in which Delta tables are asked without Spark."""


def quoted_column(name: str) -> str:
    """A name of a column as DataFusion's SQL takes it, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'
