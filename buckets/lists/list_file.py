"""Lists in files: CSV with a header, or YAML."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from buckets.errors import BucketsError, first_line
from buckets.lists.base import RESERVED, ListBase, entries_table
from buckets.lists.index import ListIndex
from buckets.lists.keys import LONGEST_KEY, MOST_PARTS, KeyForm, Match, joined, network_texts
from buckets.moment import parse_moment_ms
from buckets.stores.location import as_input, location
from buckets.stores.store_path import StoreError
from buckets.yaml_file import parse_yaml, read_text

MOST_ENTRIES: Final = 20_000_000
Key = str | Sequence[str] | None
"""The columns of a key; None: `key`, or `network` in a list of networks, or `key1`, `key2` and so on."""


def load_list(path: Path | str, key: Key = None, match: Match = "text") -> ListIndex:
    """Read a list from a file.

    Args:
        path: a CSV file with a header, or a YAML file with a list of keys or of mappings. Besides the key, `until`,
            `author` and `reason` may be there; all else are values for `lookup`.
        key: the column that holds the key, or up to four of them. None: `key`, or if the file has no such column
            `network`, whose networks are matched as by `cidr`, or `key1`, `key2` and so on.
        match: `cidr` if keys are networks, in which addresses are looked for.

    Raises:
        BucketsError: the file cannot be read, or is not such a list; says where and why.
    """
    return ListIndex(read_list(location(str(path)), key, match))


def read_list(path: Path, key: Key = None, match: Match = "text") -> ListBase:
    """Read a list from a file, as `load_list` does."""
    rows = _yaml_rows(path, key) if path.suffix.lower() in (".yaml", ".yml") else _csv_rows(path)
    return base_of(rows, key, f"list {path}", match)


def base_of(rows: pa.Table, key: Key, origin: str, match: Match = "text") -> ListBase:
    """Return a table of any columns as a list; `key` and `match` are as for `load_list`.

    Raises BucketsError if a column is missing, a key is missing, too long or repeated, or an `until` is no moment.
    """
    keys, form = _key_columns(rows, key, match, origin)
    missing = [name for name in keys if name not in rows.column_names]
    if missing:
        message = f"{origin}: there is no column {missing[0]!r}; columns there: {', '.join(rows.column_names)}"
        raise BucketsError(message)
    if len(rows) > MOST_ENTRIES:
        message = (
            f"{origin}: has {len(rows):,} entries, and at most {MOST_ENTRIES:,} are read; make several lists of it"
        )
        raise BucketsError(message)
    names = [name for name in rows.column_names if name not in (*keys, *RESERVED)]
    try:
        texts = {name: _texts(rows[name]) for name in (*keys, "author", "reason", *names) if name in rows.column_names}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"{origin}: a column cannot be read as texts ({first_line(error)}); write texts or numbers"
        raise BucketsError(message) from None
    key_texts = _key_texts([texts[name] for name in keys], form, origin)
    nothing = pa.nulls(len(rows), pa.large_string())
    until = _until_ms(rows["until"], origin) if "until" in rows.column_names else pa.nulls(len(rows), pa.int64())
    author, reason = (texts.get(name, nothing) for name in ("author", "reason"))
    base = ListBase.of(entries_table(key_texts, until, author, reason, {name: texts[name] for name in names}), form)
    repeated = base.first_repeated()
    if repeated is not None:
        message = f"{origin}: the key {repeated!r} is there twice; leave one of them out"
        raise BucketsError(message)
    return base


def _texts(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as texts, in one piece; empty texts count as missing."""
    texts = pa.concat_arrays(column.cast(pa.large_string()).chunks or [pa.nulls(0, pa.large_string())])
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def _key_columns(rows: pa.Table, key: Key, match: Match, origin: str) -> tuple[Sequence[str], KeyForm]:
    """Return the key columns, and the form of the keys."""
    if key is None and not rows.column_names:
        return [], KeyForm(0)
    if key is not None or "key" in rows.column_names:
        keys = ["key"] if key is None else [key] if isinstance(key, str) else key
    elif "network" in rows.column_names:
        keys, match = ["network"], "cidr"
    else:
        numbered = (f"key{part}" for part in range(1, MOST_PARTS + 1))
        keys = [name for name in numbered if name in rows.column_names] or ["key"]
    most = 1 if match == "cidr" else MOST_PARTS
    if not 1 <= len(keys) <= most:
        columns = "one column" if most == 1 else f"1 to {most} columns"
        message = f"{origin}: its key has {columns}, and {len(keys)} are given"
        raise BucketsError(message)
    return keys, KeyForm(len(keys), match)


def _key_texts(columns: Sequence[pa.Array], form: KeyForm, origin: str) -> pa.Array:
    if not columns:
        return pa.nulls(0, pa.large_string())
    keys = columns[0] if form.parts == 1 else joined(columns)
    if keys.null_count:
        row = pc.index(keys.is_null(), True).as_py() + 1
        message = f"{origin}: entry {row:,} has no key; write one, or leave the entry out"
        raise BucketsError(message)
    if form.match == "cidr":
        try:
            return network_texts(keys)
        except ValueError as error:
            message = f"{origin}: {error}"
            raise BucketsError(message) from None
    longest = pc.max(pc.utf8_length(keys)).as_py() or 0
    if longest > LONGEST_KEY:
        message = f"{origin}: a key has {longest:,} characters, and {LONGEST_KEY:,} are the limit"
        raise BucketsError(message)
    return keys


def _until_ms(column: pa.ChunkedArray, origin: str) -> pa.Array:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        is_date = pa.types.is_date(column.type)
        times = column.cast(pa.timestamp("us", None if is_date else column.type.tz), safe=is_date).cast(pa.int64())
        whole = pc.negate(pc.floor(pc.divide(pc.negate(times).cast(pa.float64()), 1000.0))).cast(pa.int64())
        return pa.concat_arrays(whole.chunks or [pa.nulls(0, pa.int64())])
    coded = _texts(column).dictionary_encode()
    moments = []
    for text in coded.dictionary.to_pylist():
        try:
            moments.append(parse_moment_ms(text))
        except ValueError as error:
            message = f"{origin}: until: {error}"
            raise BucketsError(message) from None
    return pa.array(moments, pa.int64()).take(coded.indices)


def _check_quotes(path: Path) -> None:
    """Check that every quote is closed on its line: an open one would swallow the following entries."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.count(b'"') % 2:
                message = f'list {path}:{number}: a quote is not closed on its line; close it, or write "" for a quote'
                raise BucketsError(message)


def _csv_rows(path: Path) -> pa.Table:
    """Return the rows of a CSV file, one per line, all values as text."""
    try:
        _check_quotes(path)
        with pacsv.open_csv(as_input(path)) as reader:
            names = reader.schema.names
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            message = f"list {path}: the column {repeated!r} is there twice; leave one of them out"
            raise BucketsError(message)
        options = pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        return pacsv.read_csv(as_input(path), convert_options=options)
    except FileNotFoundError:
        message = f"list {path}: no such file; check the path"
        raise BucketsError(message) from None
    except StoreError:  # its own message says what to do
        raise
    except (pa.ArrowInvalid, OSError) as error:
        message = f"list {path}: cannot be read as CSV ({first_line(error)}); write a header and a line for each entry"
        raise BucketsError(message) from None


def _yaml_rows(path: Path, key: Key) -> pa.Table:
    wanted = [] if key is None else [key] if isinstance(key, str) else list(key)
    key = wanted[0] if wanted else "key"
    data, _ = parse_yaml(read_text(path, "list"), path, "list")
    if not isinstance(data, list):
        message = f"list {path}: must be a list of keys, or of mappings such as {{{key}: p1, until: 2026-12-31}}"
        raise BucketsError(message)
    rows = []
    for number, entry in enumerate(data, 1):
        fields = entry if isinstance(entry, Mapping) else {key: entry}
        wrong = next((name for name, value in fields.items() if isinstance(value, Mapping | list)), None)
        if wrong is not None or not all(isinstance(name, str) for name in fields):
            message = f"list {path}: entry {number}: {wrong or 'a name'} is neither text nor a number; write one"
            raise BucketsError(message)
        rows.append({name: _scalar_text(value) for name, value in fields.items()})
    names = dict.fromkeys(name for row in rows for name in row) or wanted
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.large_string()) for name in names})


def _scalar_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
