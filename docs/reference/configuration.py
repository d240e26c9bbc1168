"""The pages of the configuration and of the event schema."""

from buckets.config.settings import JobSettings
from buckets.config.source import SourceSettings
from buckets.events.schema import EventSchema
from docs.reference.markdown import sentence
from docs.reference.models import Model, anchor, intro, model_table, submodels

_CONFIGURATION = """\
# Configuration

What a job's YAML file may say. Relative paths begin at the folder of the file. A *duration* is digits and a unit:
`250ms`, `90s`, `5m`, `24h` or `30d`. A *size* is a number of bytes, or digits and a unit, as in `256MiB`. A field
that is not listed here is an error. `buckets check CONF` names everything that is wrong, each with file and line:
[check a configuration](../guides/check-configuration.md).

Any value may name environment variables, as in `password: "${KAFKA_PASSWORD}"` or `path: "${DATA}/payments"`. One that
is not set or empty is an error. So is a `$` in a secret that begins no `${NAME}`: put a secret with a `$` into a
variable.

## The whole file { #job }

"""
_KINDS = """
Which fields go with which `kind`: `kafka` has `topic`, `topics` or `topic_pattern`, `starting_offsets`,
`max_offsets_per_trigger`, `format`, `key_format`, `schema_file`, `message` and `envelope`; all others have `path`.
`json`, `csv` and `parquet` have `subfolders`; `parquet` and `delta` have `arrival` and `out_of_order`.
"""
_SCHEMA = """\
# Event schema

An event schema says which fields of an event are its id, its time, its attributes and its measures.
[Describe your events](../guides/events.md) shows one, and says how each type is read.

"""


def configuration_page() -> str:
    """Return the page of the configuration."""
    parts = [_CONFIGURATION, model_table(JobSettings)]
    seen = set()
    for path, model in submodels(JobSettings):
        if model not in seen:
            seen.add(model)
            parts += [_heading(path, model), intro(model), "\n", model_table(model)]
            parts += [_KINDS] if model is SourceSettings else []
    return "".join(parts)


def event_schema_page() -> str:
    """Return the page of the event schema."""
    parts = [_SCHEMA, model_table(EventSchema)]
    for path, model in submodels(EventSchema):
        parts += [_heading(path, model), sentence(intro(model).strip()), "\n\n", model_table(model)]
    return "".join(parts)


def _heading(path: str, model: Model) -> str:
    return f"\n## `{path}` {{ #{anchor(model)} }}\n\n"
