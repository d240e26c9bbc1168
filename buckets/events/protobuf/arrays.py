"""Arrays as columns of lists: the walk through messages counts elements, another one finds these.

Elements that are messages are then read like messages of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events import conversion
from buckets.events.moment_text import Faults
from buckets.events.protobuf.columns import FoundValues, ValueRows, column_of, field_values
from buckets.events.protobuf.program import NO_SLOT, MessageProgram, Slots, program_of
from buckets.events.protobuf.wanted import WantedField
from buckets.events.protobuf.wire import DEEPEST, NO_ITEMS, Items, scan
from buckets.events.schema import EventSchema
from buckets.events.varint import SOUND
from buckets.events.written_values import WrittenValues, fitted, of_lists_or_items
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ElementMessage:
    """What reads elements that are messages: their value, how they are walked through, and where it is put down."""

    value: WantedField
    program: MessageProgram
    slots: Slots | None
    slot_count: int


@dataclass(frozen=True)
class ElementReader:
    """What reads the elements of an array.

    Attributes:
        field: the list.
        slots: of it.
        messages: what reads elements that are messages; None where an element is the value.
    """

    field: WantedField
    slots: Slots
    messages: ElementMessage | None


@dataclass(frozen=True)
class FoundElements:
    """The elements of an array.

    Attributes:
        reader: what reads them.
        counts: int64 `(rows,)`, how many each row has.
        faults: by row, what is wrong with the list.
        written: each as it is in its list.
        inside: what was found in those that are messages.
    """

    reader: ElementReader
    counts: Int64s
    faults: Faults
    written: WrittenValues
    inside: FoundValues | None


def element_readers(
    names: Sequence[str], fields: Sequence[WantedField], slots: Sequence[Slots | None]
) -> dict[str, ElementReader]:
    """Return by declared array what reads its elements; of those that a message does not have nothing."""
    readers = {}
    for name, field, of_field in zip(names, fields, slots, strict=True):
        if field.inner is None or of_field is None:
            continue
        messages = None
        if field.inner:
            value = WantedField(field.inner)
            program, (of_value,), count = program_of(field.last.message_type, [value])
            messages = ElementMessage(value, program, of_value, count)
        readers[name] = ElementReader(field, of_field, messages)
    return readers


def read_items(
    program: MessageProgram,
    readers: Mapping[str, ElementReader],
    found: FoundValues,
    begin: Int64s,
    end: Int64s,
    codes: Int64s,
) -> dict[str, FoundElements]:
    """Read the elements of all arrays.

    Args:
        program: of the messages.
        readers: by array, what reads its elements.
        found: what was found in messages, with the lengths of lists; one in which an element is broken is not sound
            any more.
        begin: int64 `(rows,)`, where each message begins.
        end: int64 `(rows,)`, where each ends.
        codes: int64 `(rows, 2)`, what is wrong with messages, and after how many bytes; what is wrong with elements is
            added.
    """
    wanted = np.zeros_like(found.numbers)
    faults: dict[int, Faults] = {}
    for slot in {reader.slots.value for reader in readers.values()}:
        counts = np.where(found.there[slot] & found.sound, found.numbers[slot], 0)
        too_many = np.flatnonzero(counts > conversion.MOST_ELEMENTS)
        faults[slot] = {int(row): conversion.too_many(int(counts[row])) for row in too_many}
        counts[too_many] = 0
        wanted[slot] = counts
    ends = np.cumsum(wanted).reshape(wanted.shape)
    items = Items(wanted, ends - wanted, *np.zeros((2, int(wanted.sum())), np.int64))
    _find(program, found, begin, end, items)
    read = {}
    for name, reader in readers.items():
        slot = reader.slots.value
        of_list = np.arange(int(wanted[slot].sum())) + int(wanted[:slot].sum())
        written = WrittenValues(found.data, items.values, items.lengths).of(of_list)
        inside = None
        if reader.messages is not None:
            rows = np.repeat(np.arange(len(begin)), wanted[slot])
            inside, of_messages = _inside(reader.messages, written)
            for element in np.flatnonzero(~inside.sound).tolist():
                row = rows[element]
                at = of_messages[element, 1] + written.numbers[element] - begin[row]
                found.sound[row], codes[row] = False, (of_messages[element, 0], at)
        read[name] = FoundElements(reader, wanted[slot], faults[slot], written, inside)
    return read


def _find(program: MessageProgram, found: FoundValues, begin: Int64s, end: Int64s, items: Items) -> None:
    """Walk once more through the messages that have items that are wanted."""
    rows = np.flatnonzero(items.wanted.any(axis=0))
    shape = (len(items.wanted), len(rows))
    there, (numbers, lengths) = np.zeros(shape, np.bool_), np.zeros((2, *shape), np.int64)
    wanted, start = (np.ascontiguousarray(part[:, rows]) for part in (items.wanted, items.start))
    of_rows = items._replace(wanted=wanted, start=start)
    codes, stack = np.empty((len(rows), 2), np.int64), np.empty((3, DEEPEST), np.int64)
    first, last = read_only(begin[rows]), read_only(end[rows])
    scan(program, found.data, first, last, there, numbers, lengths, of_rows, codes, stack)


def _inside(reader: ElementMessage, written: WrittenValues) -> tuple[FoundValues, Int64s]:
    """Return what is found in elements that are messages, and what is wrong with them, as codes with positions."""
    count = len(written.numbers)
    there = np.zeros((reader.slot_count, count), np.bool_)
    numbers, lengths = np.zeros((2, reader.slot_count, count), np.int64)
    codes, stack = np.empty((count, 2), np.int64), np.empty((3, DEEPEST), np.int64)
    begin, end = read_only(written.numbers), read_only(written.numbers + written.lengths)
    scan(reader.program, written.data, begin, end, there, numbers, lengths, NO_ITEMS, codes, stack)
    return FoundValues(written.data, there, numbers, lengths, codes[:, 0] == SOUND), codes


def array_values(
    name: str, elements: FoundElements, found: FoundValues, schema: EventSchema
) -> tuple[pa.Array, Faults]:
    """Return the column of an array, or of a field in an element of a list, and what is wrong with it.

    It is null where the message that it is in is missing. A list that is not written is empty.
    """
    reader = elements.reader
    is_there = found.sound if reader.slots.parent == NO_SLOT else found.there[reader.slots.parent] & found.sound
    if elements.inside is not None and reader.messages is not None:
        values = reader.messages
        column, of_elements = field_values(name, values.value, values.slots, elements.inside, schema)
    else:
        rows, is_event_time = ValueRows(elements.written), name == schema.event_time.field
        column, of_elements = fitted(name, *column_of(reader.field.last, rows, is_event_time), schema)
    column, faults = of_lists_or_items(name, column, of_elements, elements.counts, is_there, schema)
    return column, faults | elements.faults
