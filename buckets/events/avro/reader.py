"""Reads single messages in Avro as plain values: for few messages, of which everything is wanted.

Whole numbers are as they are written, whatever a logical type makes of them.
"""

from typing import Any

from buckets.events.avro.avro_type import AvroType

_CUT = "ends in the middle of a value"


def avro_value(kind: AvroType, content: bytes) -> Any:
    """Return what a message says: null, truths, whole numbers, texts, lists and objects.

    Raises:
        ValueError: it is broken, or has a type beside these.
    """
    reader = _Reader(content)
    try:
        value = reader.value(kind)
    except IndexError:
        raise ValueError(_CUT) from None
    if reader.at != len(content):
        message = "has more bytes than its schema says"
        raise ValueError(message)
    return value


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def value(self, kind: AvroType) -> Any:
        match kind.kind:
            case "null":
                return None
            case "record":
                return {field.name: self.value(field.kind) for field in kind.fields}
            case "union":
                return self.value(kind.branches[self._natural()])
            case "boolean":
                return bool(self._bytes(1)[0])
            case "int" | "long":
                return self._number()
            case "string":
                return self._bytes(self._natural()).decode()
            case "array":
                return [self.value(kind.branches[0]) for _ in self._items()]
            case "map":
                return {self._bytes(self._natural()).decode(): self.value(kind.branches[0]) for _ in self._items()}
            case other:
                message = f"has a value of type {other}"
                raise ValueError(message)

    def _items(self) -> Any:
        """Yield once for each item of a list or map."""
        while count := self._number():
            if count < 0:
                self._number()
            if abs(count) > len(self._content):
                raise ValueError(_CUT)
            yield from range(abs(count))

    def _natural(self) -> int:
        number = self._number()
        if number < 0:
            message = "a length is negative"
            raise ValueError(message)
        return number

    def _number(self) -> int:
        zigzag = shift = 0
        while True:
            byte = self._content[self.at]
            self.at += 1
            zigzag |= (byte & 127) << shift
            if byte < 128:
                return zigzag >> 1 ^ -(zigzag & 1)
            shift += 7
            if shift > 63:
                message = "a number has more than 64 bits"
                raise ValueError(message)

    def _bytes(self, count: int) -> bytes:
        taken = self._content[self.at : self.at + count]
        if len(taken) < count:
            raise ValueError(_CUT)
        self.at += count
        return taken
