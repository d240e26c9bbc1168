"""A rule of Flink's fraud detection demo in its plain form, a line of nine parts.

    1,(active),(payeeId&beneficiaryId),,(paymentAmount),(SUM),(>),(500),(20)

The parts are: id, state, grouping fields, unique fields, aggregated field, function, operator, limit, minutes.
"""

import re

from buckets.printable import short_line
from buckets.rules.flink_message import OPERATORS, FlinkMessage, parse_flink_object

_BEGIN = re.compile(r"\s*\(?\s*-?\d+\s*\)?\s*,\s*\(?\s*[A-Za-z]", re.ASCII)


def is_plain_line(text: str) -> bool:
    """Return whether a text looks like a rule in the demo's plain form."""
    return _BEGIN.match(text) is not None


def parse_plain_line(line: str) -> FlinkMessage:
    """Return a rule in the demo's plain form.

    Raises:
        ValueError: it is not a valid one; names the field.
    """
    parts = [re.sub(r"[()]", "", part).strip() for part in line.split(",")]
    if len(parts) != 9:
        message = f"a plain rule of the Flink demo has 9 parts between commas, not {len(parts)}"
        raise ValueError(message)
    rule_id, state, keys, unique, field, function, operator, limit, minutes = parts
    names: dict[str, str] = {sign: name for name, sign in OPERATORS.items()}
    if operator and operator not in names:
        message = f"limitOperatorType: {short_line(repr(operator))} is none of {', '.join(names)}"
        raise ValueError(message)
    given = {
        "ruleId": rule_id,
        "ruleState": state.upper(),
        "groupingKeyNames": keys.split("&") if keys else [],
        "unique": unique.split("&") if unique else [],
        "aggregateFieldName": field or None,
        "aggregatorFunctionType": function.upper() or None,
        "limitOperatorType": names.get(operator),
        "limit": limit or None,
        "windowMinutes": minutes or None,
    }
    return parse_flink_object(given)
