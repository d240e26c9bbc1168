"""Broken lines, as upstream systems send them: cut off, a field missing, an impossible amount or time."""

import json
from dataclasses import dataclass

import numpy as np

from buckets.generator.line import json_line
from buckets.generator.transactions import Transactions, transaction_id

_FAULTS = ("cut off", "field missing", "third digit", "no number", "absurd time")
_FIELDS_THAT_GO_MISSING = ("transactionId", "eventTime", "payerId", "cardId", "paymentAmount")
_ABSURD_TIMES_MS = (99_999_999_999_999, -99_999_999_999_999, 9_223_372_036_854_775_807)


@dataclass(frozen=True)
class MalformedLine:
    """A line that is no transaction, without its line end, and the row of the stream that it comes before."""

    before_row: int
    text: str


def draw_malformed(
    rng: np.random.Generator, arrivals: Transactions, count: int, first_number: int
) -> tuple[MalformedLine, ...]:
    """Draw broken lines, in arrival order, numbered from `first_number`.

    Each looks like the row that it comes before, under an id of its own.
    """
    rows = np.sort(rng.integers(0, len(arrivals), count))
    lines = []
    for offset, row in enumerate(rows.tolist()):
        fault = _FAULTS[int(rng.integers(len(_FAULTS)))]
        line = json_line(arrivals, row).replace(
            transaction_id(int(arrivals.number[row])), transaction_id(first_number + offset)
        )
        lines.append(MalformedLine(row, _break(rng, line, fault)))
    return tuple(lines)


def _break(rng: np.random.Generator, line: str, fault: str) -> str:
    if fault == "cut off":
        return line[: int(rng.integers(1, len(line) - 1))]
    fields = json.loads(line)
    if fault == "field missing":
        del fields[_FIELDS_THAT_GO_MISSING[int(rng.integers(len(_FIELDS_THAT_GO_MISSING)))]]
    elif fault == "third digit":
        fields["paymentAmount"] += str(rng.integers(1, 10))
    elif fault == "no number":
        fields["paymentAmount"] = ("", "n/a", "twelve", "1.2.3")[int(rng.integers(4))]
    else:
        fields["eventTime"] = _ABSURD_TIMES_MS[int(rng.integers(len(_ABSURD_TIMES_MS)))]
    return json.dumps(fields, separators=(",", ":"))
