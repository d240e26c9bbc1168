"""The entries of a job's lists, and the verdicts that people give: read, checked and written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from buckets.checkpoint.driver_state import Checkpoint
from buckets.config.job import Job
from buckets.config.lists import ListSettings
from buckets.errors import BucketsError
from buckets.expressions.expression import RULES_LIST
from buckets.json_text import write_json
from buckets.kafka.sender import send_messages
from buckets.lists.base import RESERVED, Entry
from buckets.lists.keys import KeyForm
from buckets.moment import iso_text
from buckets.verdicts.verdict import Verdict
from buckets.verdicts.verdict_table import append_verdicts, verdict_table


def list_settings(job: Job, name: str) -> ListSettings:
    """Return the settings of a list; BucketsError if the job has no such list."""
    if name not in job.settings.lists:
        there = ", ".join(sorted(job.settings.lists)) or "none"
        message = f"there is no list {name!r}; lists of the configuration: {there}"
        if name.startswith(RULES_LIST):
            message = f"list {name} is written by rules; `buckets alerts --rule RULE` lists the alerts of those that do"
        raise BucketsError(message)
    return job.settings.lists[name]


def latest_entry(job: Job, name: str, key: str) -> tuple[str, Entry] | None:
    """Return a list's entry for a key, with its key there, as the latest batches see it; None without one.

    In a list of networks that is the most specific one that contains the key. BucketsError if the job has no such list,
    the key is invalid for it, or no batch has seen it yet.
    """
    list_settings(job, name)
    lists = Checkpoint(job.checkpoint).lists
    latest = lists.latest(name)
    if latest is None:
        message = f"list {name!r}: no batch has seen it yet; run the job"
        raise BucketsError(message)
    index = lists.index(name, latest.number)
    return index.find(_read_key(name, index.form, key))


def list_key(job: Job, name: str, written: str) -> str:
    """Return a key of a list in its normal form; BucketsError if the job has no such list, or the key is invalid."""
    return _read_key(name, list_settings(job, name).form, written)


def _read_key(name: str, form: KeyForm, written: str) -> str:
    try:
        return form.read(written)
    except ValueError as error:
        message = f"list {name!r}: {error}"
        raise BucketsError(message) from None


def entry_fields(entry: Entry) -> dict[str, str]:
    """Return the fields of an entry, as in a message."""
    until = {} if entry.until_ms is None else {"until": iso_text(entry.until_ms)}
    signed = {field: text for field in ("author", "reason") if (text := getattr(entry, field))}
    return {**until, **signed, **entry.values}


def read_values(given: Iterable[str], origin: str) -> dict[str, str]:
    """Parse values for `lookup` from texts such as `category=casino`; errors name `origin`."""
    values: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name or name in RESERVED or name in values:
            message = f"{origin} {text}: write NAME=TEXT, each name once and none of {', '.join(RESERVED)}"
            raise BucketsError(message)
        values[name] = value
    return values


def check_change(job: Job, name: str, key: str) -> tuple[str, str]:
    """Return the topic of a list whose entry can be changed, and its key there.

    BucketsError if the list is not in a topic, or the key is invalid for it.
    """
    settings = list_settings(job, name)
    if settings.topic is None:
        message = f"list {name!r} is in {settings.place}, and only lists in topics are changed here; change it there"
        raise BucketsError(message)
    return settings.topic, list_key(job, name, key)


def put_entry(job: Job, name: str, key: str, fields: Mapping[str, Any]) -> None:
    """Put an entry into a list that is in a topic; a running job sees it with one of its next batches.

    Fields are `until`, `author`, `reason`, and values for `lookup`. BucketsError as `check_change`, or if the broker
    refuses the message.
    """
    topic, of_entry = check_change(job, name, key)
    send_messages(job.settings.kafka, topic, [(of_entry, write_json(dict(fields)), {})])


def remove_entry(job: Job, name: str, key: str, signed: Mapping[str, str]) -> None:
    """Remove an entry from a list that is in a topic; author and reason are headers of a message without a value.

    BucketsError as `put_entry`.
    """
    headers = {field: text for field, text in signed.items() if text}
    topic, of_entry = check_change(job, name, key)
    send_messages(job.settings.kafka, topic, [(of_entry, None, headers)])


def write_verdicts(job: Job, verdicts: Sequence[Verdict]) -> tuple[int, str]:
    """Write verdicts; return how many were new, if known, and where they are."""
    settings = job.settings
    if settings.verdicts.topic is None:
        table = verdict_table(job)
        return append_verdicts(table, verdicts), f"table {table}"
    new = {verdict.id: verdict for verdict in verdicts}.values()
    messages = ((one.alert_id or one.event_id or "", one.message(), {"id": one.id}) for one in new)
    send_messages(settings.kafka, settings.verdicts.topic, messages, "writing verdicts")
    return len(new), f"topic {settings.verdicts.topic}"
