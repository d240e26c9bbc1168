"""The page of the aggregates: what features of rules may compute."""

from buckets.aggregates.aggregate import ANY_FIELD, NUMBERS
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from docs.reference.markdown import code, table

_FIELDS = {(): "", NUMBERS: "number", ANY_FIELD: "any field"}
_INTRO = f"""\
# Aggregates

A feature of a rule computes one of these functions over its window. Rules in the short form have
{", ".join(f"`{name}`" for name in SHORT_FUNCTIONS)}.

A *number* is a measure or an attribute of type `long`. *Any field* is a number, or an attribute of type `string` or
`boolean`. Functions with a * look at single events, so their window has to lie in the `tail` (everything by default);
a job with a shorter tail refuses the rule. [Write rules](../guides/write-rules.md) shows how features are used.

"""
_END = """
- A window ends at its event, so an event counts itself where the filter lets it through.
- `same_count` adds the field to the grouping: it is a count in a group of its own.
- `percentile` takes `p`, a number above 0 and up to 100 with at most two digits after the point, as in
  `{function: percentile, of: paymentAmount, p: 95}`.
- `sequence` takes `steps`, and may have `step_field` and `without`: see [write
  rules](../guides/write-rules.md#sequences). `absence` takes one step, `without` and `within`: see [what did not follow
  in time](../guides/write-rules.md#what-did-not-follow-in-time).
- `decayed_sum` and `decayed_count` take `half_life`, a duration, as in
  `{function: decayed_sum, of: paymentAmount, half_life: 7d, window: 90d}`.
- `avg`, `max`, `median`, `min`, `percentile`, `stddev`, `sum` and `variance` may be of what each day or other period
  comes to, as in `{function: avg, of: {function: count, every: 1d}, window: 30d}`: see [a customer's own
  days](../guides/write-rules.md#a-customers-own-days).
- `first`, `last`, `mode` and `previous` of a text or a boolean are a text or a boolean.
- An event with a null in the field is left out of the aggregate. See [missing
  fields](../explanation/missing-fields.md).
"""


def rows() -> list[tuple[str, str, str, str]]:
    """Return a row for each aggregate: its name, what it is, which fields it takes, and when it is NULL."""
    return [
        (f"{code(name)}{' *' if each.needs_raw_events else ''}", each.description, _FIELDS[each.takes], each.null_when)
        for name, each in AGGREGATES.items()
    ]


def page() -> str:
    """Return the page."""
    return _INTRO + table(("Function", "What it is", "`of`", "NULL"), rows()) + _END
