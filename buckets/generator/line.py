"""How transactions look in a file: as lines of JSON, as lines of CSV, as Arrow record batches."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from buckets.generator.transactions import (
    FIELD_NAMES,
    PAYMENT_TYPES,
    Transactions,
    amount_text,
    beneficiary_id,
    card_id,
    payer_id,
    transaction_id,
)

ROWS_AT_ONCE = 50_000
CSV_HEADER = ",".join(FIELD_NAMES)
_QUOTED = (f'"{name}":{{}}' if name == "eventTime" else f'"{name}":"{{}}"' for name in FIELD_NAMES)
_JSON = "{{" + ",".join(_QUOTED) + "}}"
_CSV = ",".join("{}" for _ in FIELD_NAMES)
_Fields = tuple[str, int, str, str, str, str, str]


def _rows(transactions: Transactions) -> Iterator[_Fields]:
    for start in range(0, len(transactions), ROWS_AT_ONCE):
        part = transactions.take(slice(start, start + ROWS_AT_ONCE))
        yield from zip(
            map(transaction_id, part.number.tolist()),
            part.event_time_ms.tolist(),
            map(payer_id, part.payer.tolist()),
            map(beneficiary_id, part.beneficiary.tolist()),
            map(card_id, part.card.tolist()),
            [PAYMENT_TYPES[kind] for kind in part.payment_type.tolist()],
            map(amount_text, part.amount_cents.tolist()),
            strict=True,
        )


def json_lines(transactions: Transactions) -> Iterator[str]:
    """Write each transaction as JSON, without line ends; the amount is a string, so that no float touches it."""
    return (_JSON.format(*row) for row in _rows(transactions))


def json_line(transactions: Transactions, row: int) -> str:
    """Write one transaction as JSON."""
    return next(json_lines(transactions.take(slice(row, row + 1))))


def csv_lines(transactions: Transactions) -> Iterator[str]:
    """Write each transaction as CSV, without the header."""
    return (_CSV.format(*row) for row in _rows(transactions))


_AMOUNT = pa.decimal128(18, 2)
ARROW_SCHEMA = pa.schema(
    [(name, {"eventTime": pa.int64(), "paymentAmount": _AMOUNT}.get(name, pa.string())) for name in FIELD_NAMES]
)


def record_batch(transactions: Transactions) -> Any:
    """Make one Arrow record batch of `ARROW_SCHEMA` of all transactions."""
    columns = list(zip(*_rows(transactions), strict=True)) or [()] * len(FIELD_NAMES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns[:-1], ARROW_SCHEMA, strict=False)]
    amounts = pa.array(transactions.amount_cents).cast(pa.decimal128(19, 0)).view(_AMOUNT)
    return pa.record_batch([*arrays, amounts], schema=ARROW_SCHEMA)
