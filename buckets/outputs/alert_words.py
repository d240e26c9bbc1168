"""What made an alert, in words: its value and limit, or its condition with the numbers in it."""

from typing import Any

from buckets.numbers.figures import readable


def term_value(term: dict[str, Any]) -> str:
    """Return the value of a feature, as people read it."""
    value = term["value"]
    if value is None:
        return "no value"
    return ("yes" if value else "no") if isinstance(value, bool) else readable(value)


def crossed(alert: dict[str, Any]) -> str:
    """Say in short what made an alert: its value and limit, or its condition with the numbers in it."""
    if alert["value"] is None:
        return str(alert["condition"])
    return f"{readable(alert['value'])} {alert['operator']} {readable(alert['limit'])}"
