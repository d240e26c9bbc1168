"""Pages of lists: all lists, the entry of one for a key, and changes of lists in topics."""

import json
from typing import Any

from buckets.changes.list_entries import (
    check_change,
    entry_fields,
    latest_entry,
    list_key,
    list_settings,
    put_entry,
    read_values,
    remove_entry,
)
from buckets.checkpoint.driver_state import Checkpoint
from buckets.console.view import Asked, Onward, View, address, seen_mark
from buckets.errors import BucketsError
from buckets.moment import parse_moment_ms
from buckets.printable import quoted
from buckets.rules.change import check_reason

Fields = dict[str, str]
_SIGNED = ("author", "reason")


def page(asked: Asked) -> View:
    """Show the lists of the job as the latest batches see them."""
    job = asked.site.job
    kept = Checkpoint(job.checkpoint).lists
    faults = kept.faults()
    rows = [
        {"name": name, "settings": settings, "version": kept.latest(name), "fault": faults.get(name, "")}
        for name, settings in job.settings.lists.items()
    ]
    return View("lists.html", rows=rows)


def one(asked: Asked) -> View:
    """Show a list, the rules that look into it, and its entry for a key."""
    job, name, key = asked.site.job, asked.named("name"), asked.query.get("key", "")
    settings = list_settings(job, name)
    latest = Checkpoint(job.checkpoint).lists.latest(name)
    found = latest_entry(job, name, key) if key else None
    key, entry = (key, None) if found is None else found
    return View(
        "list.html",
        name=name,
        settings=settings,
        version=latest,
        key=key,
        entry=None if entry is None else entry_fields(entry),
        values="" if entry is None else "\n".join(f"{value}={text}" for value, text in entry.values.items()),
        rules=_rules(asked, name),
    )


def preview(asked: Asked) -> View:
    """Show the effect of an entry's change before it is made."""
    name, key = asked.given("name"), _key(asked)
    check_change(asked.site.job, name, key)
    before = _before(asked, name, key)
    after = None if asked.given("what") == "remove" else _typed(asked)
    unsigned = None if before is None else {field: text for field, text in before.items() if field not in _SIGNED}
    return View(
        "list-change.html",
        name=name,
        key=key,
        what=asked.given("what"),
        place=list_settings(asked.site.job, name).place,
        before=before,
        after=after,
        typed={"until": asked.given("until"), "values": "\n".join(_lines(asked))},
        differs=after != unsigned,
        seen=_mark(before),
        rules=_rules(asked, name),
    )


def make(asked: Asked) -> Onward:
    """Make a change of an entry that was previewed."""
    job, name, key, reason = asked.site.job, asked.given("name"), _key(asked), asked.given("reason")
    check_change(job, name, key)
    check_reason(reason)
    if asked.given("seen") != _mark(_before(asked, name, key)):
        message = f"the entry of {key!r} has changed since this page was opened; open it again and repeat the change"
        raise BucketsError(message)
    signed = {"author": asked.person.name, "reason": reason}
    if asked.given("what") == "remove":
        remove_entry(job, name, key, signed)
    else:
        put_entry(job, name, key, _typed(asked) | signed)
    what = "removed" if asked.given("what") == "remove" else "put"
    return Onward(address("/list", name=name), f"{quoted(key)} is {what}; one of the next batches uses it")


def _key(asked: Asked) -> str:
    """Return the key as typed: surrounding blanks belong to it."""
    return next(iter(asked.form.get("key", ())), "")


def _before(asked: Asked, name: str, key: str) -> Fields | None:
    """Return the entry as the latest batches see it; None if it is missing, or no batch has seen the list."""
    if Checkpoint(asked.site.job.checkpoint).lists.latest(name) is None:
        return None
    found = latest_entry(asked.site.job, name, key)
    is_there = found is not None and found[0] == list_key(asked.site.job, name, key)
    return entry_fields(found[1]) if found is not None and is_there else None


def _typed(asked: Asked) -> Fields:
    until = asked.given("until")
    try:
        if until:
            parse_moment_ms(until)
    except ValueError as error:
        message = f"until: {error}"
        raise BucketsError(message) from None
    return ({"until": until} if until else {}) | read_values(_lines(asked), "values:")


def _lines(asked: Asked) -> list[str]:
    return [line.strip() for line in asked.given("values").splitlines() if line.strip()]


def _mark(entry: Fields | None) -> str:
    return seen_mark(json.dumps(entry, sort_keys=True))


def _rules(asked: Asked, name: str) -> list[Any]:
    return [rule for rule in asked.site.rules().rules if name in rule.lists]
