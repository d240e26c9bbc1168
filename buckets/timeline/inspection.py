"""Stored timelines, decoded: heads as arrays, and a whole timeline for people with its clock, cells and pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Flags, Int64s
from buckets.byte_strings import ByteStrings
from buckets.compiled import compiled, inlined
from buckets.errors import BucketsError
from buckets.numbers.wide_sum import LOW_BITS
from buckets.timeline.codec import CODEC_VERSION
from buckets.timeline.head import (
    FROM_THE_BEGINNING,
    NO_CLOCK,
    Directory,
    new_directory,
    push_entry,
    read_cells,
    read_entry_count,
    read_head,
)
from buckets.timeline.timeline import HOT, NO_ID, Timeline, clear, new_timeline, text_length, text_start


class Heads(NamedTuple):
    """Decoded heads: int64 arrays of shape `(keys,)` unless said otherwise."""

    clock_ms: Int64s  # the key's clock, NO_CLOCK for a new key; `score_keys` updates it
    since_ms: Int64s  # since when its timeline is complete; FROM_THE_BEGINNING if it always was
    generation: Int64s  # the generation of its group when it was written; 0 if none was written
    next_page: Int64s  # the next unused page number
    cells_at: Int64s  # the position of its newest cells; the head's end if it has none
    cells: Int64s  # how many newest cells it has
    has_nulls: Flags  # bool, whether one of them has an event without a value
    is_there: Flags  # bool, whether there is a head


@compiled
def unreadable(pool, head_start):
    """Return the first key whose head has an unknown version; -1 for none."""
    for key in range(head_start.shape[0] - 1):
        if read_entry_count(pool, head_start[key], head_start[key + 1]) < 0:
            return key
    return -1


@compiled
def read_heads(pool, head_start, columns):
    """Read concatenated heads of any generations as `Heads` and the `Directory` of all keys."""
    keys = head_start.shape[0] - 1
    start = np.zeros(keys + 1, np.int64)
    for key in range(keys):
        start[key + 1] = start[key] + read_entry_count(pool, head_start[key], head_start[key + 1])
    directory = new_directory(start, columns)
    numbers, flags = np.empty((6, keys), np.int64), np.empty((2, keys), np.bool_)
    heads = Heads(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], flags[0], flags[1])
    for key in range(keys):
        clock_ms, since_ms, written_by, next_page, at, cells, heads.has_nulls[key] = read_head(
            pool, head_start[key], head_start[key + 1], directory, key
        )
        heads.clock_ms[key] = clock_ms
        heads.since_ms[key] = since_ms
        heads.generation[key] = written_by
        heads.next_page[key] = next_page
        heads.cells_at[key] = at
        heads.cells[key] = cells
        heads.is_there[key] = head_start[key] < head_start[key + 1]
    return heads, directory


@inlined
def load_timeline(timeline: Timeline, pool, heads: Heads, directory: Directory, key, page_start):
    """Build a key's timeline from its head, the loaded pages, and one cell for each page that is not loaded."""
    clear(timeline)
    if heads.clock_ms[key] == NO_CLOCK:
        return
    for entry in range(directory.start[key], directory.start[key + 1]):
        if directory.is_loaded[entry]:
            from_ms = directory.first_ms[entry] if directory.is_trimmed[entry] else np.int64(FROM_THE_BEGINNING)
            read_cells(pool, page_start[entry], timeline, np.int32(entry), from_ms)
        else:
            push_entry(timeline, directory, entry)
    if heads.cells[key]:
        at = heads.cells_at[key]
        read_cells(pool, at, timeline, np.int32(HOT), np.int64(FROM_THE_BEGINNING))


@dataclass(frozen=True)
class CellView:
    """One cell."""

    first_ms: int  # time of its first event
    last_ms: int  # time of its last event
    events: int  # how many events it holds
    event_id: str | None  # the id of a raw event, None for a bucket
    plus: tuple[int, ...]  # by measure, the sum of positive values, scaled
    minus: tuple[int, ...]  # by measure, the sum of negative values without its sign
    # by measure; None if no event has a value. Both are the text of a raw event, and None for texts in a bucket
    least: tuple[int | str | None, ...]
    greatest: tuple[int | str | None, ...]  # by measure, likewise
    nulls: tuple[int, ...]  # by measure, how many events have no value
    page: int | None  # number of its page; None for the head


@dataclass(frozen=True)
class TimelineView:
    """A timeline."""

    codec: int  # version of the codec that wrote its head
    clock_ms: int  # the key's clock
    pages: tuple[int, ...]  # numbers of its pages, oldest first
    cells: tuple[CellView, ...]  # oldest first


@compiled
def _load_whole(pool, heads, directory, page_start, is_text):
    """Load a key's timeline with all its pages."""
    cells = heads.cells[0]
    for entry in range(directory.start[1]):
        cells += directory.cells[entry]
    timeline = new_timeline(cells, np.zeros(is_text.shape[0], np.bool_), is_text)
    load_timeline(timeline, pool, heads, directory, 0, page_start)
    return timeline


@dataclass(frozen=True)
class HeadSummary:
    """Clocks and sizes of timelines: int64 arrays of shape `(keys,)`."""

    clocks_ms: Int64s
    cells: Int64s
    pages: Int64s


@compiled
def _extents(pool, heads, directory):
    """Return the number of events of each timeline, its first and its last time, from the heads alone."""
    keys = heads.clock_ms.shape[0]
    extents, no_pages = np.zeros((3, keys), np.int64), np.zeros(directory.start[keys], np.int64)
    most = 0
    for key in range(keys):
        most = max(most, heads.cells[key] + directory.start[key + 1] - directory.start[key])
    no_columns = np.zeros(0, np.bool_)
    timeline = new_timeline(most, no_columns, no_columns)
    for key in range(keys):
        load_timeline(timeline, pool, heads, directory, key, no_pages)
        size = timeline.size[0]
        if size:
            extents[0, key] = timeline.prefix_count[size]
            extents[1, key] = timeline.first_ms[0]
            extents[2, key] = timeline.last_ms[size - 1]
    return extents


@dataclass(frozen=True)
class Extents:
    """Numbers of events and times of timelines: int64 arrays of shape `(keys,)`; times are 0 without events."""

    events: Int64s
    first_ms: Int64s
    last_ms: Int64s


def extents_of(heads: ByteStrings) -> Extents:
    """Return numbers of events and times of timelines, from their heads alone.

    Raises:
        BucketsError: one was written by an unknown version of the codec.
    """
    return Extents(*_extents(heads.data, *_read(heads)))


def _read(heads: ByteStrings, columns: int = 0) -> tuple[Heads, Directory]:
    """Read heads of known versions."""
    pool, start = heads
    key = unreadable(pool, start)
    if key >= 0:
        version = pool[start[key]]
        message = f"a timeline was written by codec version {version}, and this release reads version {CODEC_VERSION}"
        raise BucketsError(message)
    known, directory = read_heads(pool, start, columns)
    return known, directory


def summarise_heads(heads: ByteStrings) -> HeadSummary:
    """Return clocks and sizes of timelines, from their heads alone.

    Raises:
        BucketsError: one was written by an unknown version of the codec.
    """
    known, directory = _read(heads)
    cells = np.append(0, np.cumsum(directory.cells))
    in_pages = cells[directory.start[1:]] - cells[directory.start[:-1]]
    return HeadSummary(known.clock_ms, known.cells + in_pages, np.diff(directory.start))


def clocks_of(heads: ByteStrings, generations: Int64s) -> Int64s:
    """Return the clocks of keys, int64 `(keys,)`, in ms; NO_CLOCK for an empty head or one of another generation."""
    known, _ = _read(heads)
    return np.where(known.generation == generations, known.clock_ms, NO_CLOCK)


def pages_of(heads: ByteStrings) -> tuple[Int64s, Int64s]:
    """Return the pages of timelines, oldest first: the index of each page's head, and its number, int64 `(pages,)`."""
    _, directory = _read(heads)
    return np.repeat(np.arange(heads.size), np.diff(directory.start)), directory.page


def view_timeline(
    head: bytes, read_pages: Callable[[Sequence[int]], list[bytes]], text_columns: Sequence[bool]
) -> TimelineView:
    """Decode a timeline; `read_pages` reads pages by number, and `text_columns` says which columns hold texts.

    Raises:
        BucketsError: it was written by an unknown version of the codec.
    """
    heads, directory = _read(ByteStrings.of([head]), len(text_columns))
    numbers = directory.page.tolist()
    pages = read_pages(numbers) if numbers else []
    page_start = np.cumsum([len(head), *map(len, pages)])[:-1].astype(np.int64)
    directory.is_loaded[:] = True
    whole = np.frombuffer(head + b"".join(pages), np.uint8)
    timeline = _load_whole(whole, heads, directory, page_start, np.array(text_columns, np.bool_))
    return TimelineView(head[0], int(heads.clock_ms[0]), tuple(numbers), tuple(_cells(timeline, numbers, whole)))


def _cells(timeline: Timeline, numbers: Sequence[int], pool: npt.NDArray[np.uint8]) -> Iterator[CellView]:
    columns = range(timeline.extremes.shape[1])
    for cell in range(int(timeline.size[0])):
        start, length = int(timeline.id_start[cell]), int(timeline.id_length[cell])
        owner = int(timeline.owner[cell])
        is_combined = length == NO_ID
        is_there = [timeline.extremes[0, column, cell] <= timeline.extremes[1, column, cell] for column in columns]
        ends = [
            [int(timeline.extremes[side, column, cell]) if is_there[column] else None for column in columns]
            for side in range(2)
        ]
        sums = [
            tuple((int(part[0, column, cell]) << LOW_BITS) + int(part[1, column, cell]) for column in columns)
            for part in (timeline.plus, timeline.minus)
        ]
        texts = {column: None if is_combined else ends[0][column] for column in columns if timeline.is_text[column]}
        least, greatest = (
            tuple(_text(pool, texts[column]) if column in texts else end for column, end in enumerate(side))
            for side in ends
        )
        plus, minus = (
            tuple(0 if column in texts else max(sign * (end or 0), 0) for column, end in enumerate(ends[0]))
            for sign in (1, -1)
        )
        yield CellView(
            first_ms=int(timeline.first_ms[cell]),
            last_ms=int(timeline.last_ms[cell]),
            events=int(timeline.prefix_count[cell + 1] - timeline.prefix_count[cell]),
            event_id=None if is_combined else pool[start : start + length].tobytes().decode(),
            plus=sums[0] if is_combined else plus,
            minus=sums[1] if is_combined else minus,
            least=least,
            greatest=greatest,
            nulls=tuple(
                int(timeline.nulls[column, cell]) if is_combined else int(not is_there[column]) for column in columns
            ),
            page=None if owner == HOT else numbers[owner],
        )


def _text(pool: npt.NDArray[np.uint8], place: int | None) -> str | None:
    return None if place is None else texts_at(pool, np.array([place]))[0]


def texts_at(pool: npt.NDArray[np.uint8], places: Int64s) -> npt.NDArray[Any]:
    """Return the texts at places of a pool, as objects."""
    different, index = np.unique(places, return_inverse=True)
    texts = np.empty(len(different), object)
    texts[:] = [
        pool[text_start(place) : text_start(place) + text_length(place)].tobytes().decode(errors="replace")
        for place in different.tolist()
    ]
    return texts[index]
