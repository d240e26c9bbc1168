"""The command `buckets snooze`: alerts of a rule, or of a key, are held back for a time."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.text import Text

from buckets.cli.console import Listing, TextTable, echo
from buckets.cli.options import Author, Reason, author_and_reason
from buckets.cli.rules.request import Conf, JobRules
from buckets.config.job import Job, load_job
from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.moment import in_utc, moment_ms, time_text
from buckets.printable import one_line, short_line
from buckets.rules.change import RuleChange
from buckets.rules.policies.policy import key_texts
from buckets.rules.policies.snoozes import MOST_SNOOZES, Snooze, key_fault
from buckets.rules.revision import names
from buckets.rules.rule import Rule

Key = dict[str, str | int | bool]
ChangeOf = Callable[[Rule], tuple[Snooze, ...] | None]
"""Gives the snoozes of a rule as they are to be; None where nothing is to change."""
RuleOption = Annotated[
    str | None, typer.Option("--rule", help="A rule; without it, every rule that groups by the key.")
]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", help="FIELD=VALUE,FIELD=VALUE or JSON; without it, all keys of the rule.")
]
Until = Annotated[str | None, typer.Option(help="When it is over, by event time: ISO 8601, or from now, as in 24h.")]
From = Annotated[str | None, typer.Option("--from", help="When it begins, likewise; without it, it always has.")]
Listed = Annotated[bool, typer.Option("--list", help="List snoozes, in force and over, and change nothing.")]
Ended = Annotated[bool, typer.Option("--end", help="End snoozes of the rule or the key, now or at --until.")]


def snooze(
    conf: Conf,
    rule: RuleOption = None,
    key: KeyOption = None,
    until: Until = None,
    start: From = None,
    author: Author = None,
    reason: Reason = "",
    list_: Listed = False,
    end: Ended = False,
) -> None:
    """Hold back the alerts of a rule, or of one key, until a time; `held_alerts` keeps them.

    It takes the way of every change of a rule, with author and reason, and
    counts from the next batch on. Times are those of events.

    \b
    Examples:
      buckets snooze --rule payer-24h --key payerId=p-17 --until 24h --reason "moves house" --conf conf/kafka.yaml
      buckets snooze --rule payer-24h --until 2027-01-02T06:00Z --reason "new year" --conf conf/kafka.yaml
      buckets snooze --key '{"payerId": "p,17"}' --until 7d --reason "test of the bank" --conf conf/kafka.yaml
      buckets snooze --list --conf conf/kafka.yaml
      buckets snooze --end --rule payer-24h --key payerId=p-17 --reason "has moved" --conf conf/kafka.yaml
    """  # noqa: D301 - click needs the backspace itself
    if list_ and end:
        message = "--list shows snoozes and --end ends them; give one of the two"
        raise BucketsError(message)
    job, now = load_job(conf), datetime.now(UTC).replace(microsecond=0)
    if len(key or ()) > 1:
        message = "--key is given more than once; write FIELD=VALUE,FIELD=VALUE for one key, and a command for each"
        raise BucketsError(message)
    wanted = None if not key else read_key(key[0], job.event_schema.attributes)
    if list_:
        _listing(job, rule, wanted, now).show()
        return
    if rule is None and wanted is None:
        message = "name a rule with --rule, a key with --key, or both; --list shows the snoozes there are"
        raise BucketsError(message)
    if not end and until is None:
        message = "--until: when is it over? Write a time, as in 2027-01-02T06:00Z, or how long from now, as in 24h"
        raise BucketsError(message)
    signed = author_and_reason(author, reason)
    of = _key_text(wanted)
    last = now if until is None else read_moment("--until", until, now)
    if end:
        what = f"snoozes of {of} end at {_shown(last)}"
        _change(job, rule, wanted, signed, lambda kept: _ended(kept, wanted, last), what)
        return
    asked = {"key": wanted, "from": None if start is None else read_moment("--from", start, now), "until": last}
    new = _new_snooze(asked | signed)
    what = f"alerts of {of} are held back until {_shown(last)}"
    _change(job, rule, wanted, signed, lambda kept: _added(kept, new, now), what)


def _change(
    job: Job, rule_id: str | None, key: Key | None, signed: dict[str, Any], change_of: ChangeOf, what: str
) -> None:
    """Put rules with other snoozes where they are kept."""
    kept = JobRules(job)
    rules = kept.rules if rule_id is None else [kept.rule(rule_id)]
    if rule_id is None:
        assert key is not None
        rules = [rule for rule in rules if set(rule.group_by) == set(key)]
        if not rules:
            message = f"--key: no rule in {kept.name} groups by {', '.join(key)}; rules there group by other fields"
            raise BucketsError(message)
    for rule in rules:
        fault = None if key is None else key_fault(key, rule.group_by, job.event_schema)
        if fault is not None:
            message = f"--key: {fault} (rule {rule.rule_id!r})"
            raise BucketsError(message)
    changes = ((rule, change_of(rule)) for rule in rules)
    changed = [rule.model_copy(update={"snoozes": after}) for rule, after in changes if after is not None]
    asked = [RuleChange(change="put", rule=rule, **signed) for rule in changed]
    if not asked:
        message = f"nothing to change in {kept.name}: `buckets snooze --list` shows the snoozes there are"
        raise BucketsError(message)
    kept.change(asked)
    echo(f"{names(rule.rule_id for rule in changed)}: {what}, from the next batch on; written to {kept.name}")


def _added(rule: Rule, new: Snooze, now: datetime) -> tuple[Snooze, ...] | None:
    """Add a snooze to those of a rule; where there are too many, those go that have been over for longest."""
    if new in rule.snoozes:
        return None
    snoozes = list(rule.snoozes)
    while len(snoozes) >= MOST_SNOOZES:
        oldest = min(snoozes, key=lambda snooze: snooze.until)
        if oldest.until > now:
            message = f"rule {rule.rule_id!r} has {MOST_SNOOZES:,} snoozes in force, which is the limit; end some first"
            raise BucketsError(message)
        snoozes.remove(oldest)
    return (*snoozes, new)


def _ended(rule: Rule, key: Key | None, last: datetime) -> tuple[Snooze, ...] | None:
    """End snoozes of a rule, those of a key; None where none of them would last longer."""
    left = []
    for snooze in rule.snoozes:
        is_meant = _same_key(snooze.key, key) and snooze.until > last
        if not is_meant:
            left.append(snooze)
        elif snooze.start is None or snooze.start < last:
            left.append(snooze.model_copy(update={"until": last}))
    return None if tuple(left) == rule.snoozes else tuple(left)


def _same_key(one: Mapping[str, str | int | bool] | None, other: Key | None) -> bool:
    if one is None or other is None:
        return one is None and other is None
    return set(one) == set(other) and key_texts(one) == key_texts(other)


def _new_snooze(asked: dict[str, Any]) -> Snooze:
    try:
        snooze = Snooze.model_validate(asked)
    except ValidationError:
        message = "--reason: why are alerts held back? Whoever misses one wants to know"
        raise BucketsError(message) from None
    if snooze.start is not None and snooze.start >= snooze.until:
        message = f"--from: {_shown(snooze.start)} is not before --until {_shown(snooze.until)}"
        raise BucketsError(message)
    return snooze


def _listing(job: Job, rule_id: str | None, key: Key | None, now: datetime) -> Listing[tuple[Rule, Snooze]]:
    """Return the snoozes that there are."""
    rules = JobRules(job)
    snoozes = [
        (rule, snooze)
        for rule in rules.rules
        if rule_id in (None, rule.rule_id)
        for snooze in rule.snoozes
        if key is None or _same_key(snooze.key, key)
    ]

    def table(title: str, rows: Sequence[tuple[Rule, Snooze]]) -> TextTable:
        made = TextTable(title, ("Rule", "Key", "From (UTC)", "Until (UTC)", "Now", "Author", "Reason"))
        for rule, snooze in rows:
            is_begun = snooze.start is None or snooze.start <= now
            state = "over" if snooze.until <= now else "in force" if is_begun else "to come"
            start = "" if snooze.start is None else _shown(snooze.start)
            cells = [rule.rule_id, _key_text(snooze.key), start, _shown(snooze.until), state]
            made.add_row(*map(Text, [*cells, snooze.author, snooze.reason]))
        return made

    none = f"no such snoozes in {rules.name}" if rule_id or key else f"no snoozes in {rules.name}"
    return Listing(snoozes, none, f"Snoozes of {rules.name}", table)


def read_key(text: str, kinds: Mapping[str, str]) -> Key:
    """Return a key that is written as `field=value,field=value` or as JSON, its values of the kinds of their fields.

    Raises:
        BucketsError: it is neither.
    """
    if text.lstrip().startswith("{"):
        try:
            fields = json.loads(text)
        except ValueError as error:
            message = f"--key: {short_line(repr(text))} is no JSON: {error}"
            raise BucketsError(message) from None
        wrong = [field for field, value in fields.items() if not isinstance(value, str | int | bool)]
        if wrong:
            message = f"--key: {short_line(wrong[0])} must be a text, a whole number, true or false"
            raise BucketsError(message)
        return dict(fields)
    key: Key = {}
    for part in text.split(","):
        field, is_given, value = part.partition("=")
        if not is_given or not field.strip() or field.strip() in key:
            message = (
                f"--key: {short_line(repr(text))} is not of the form FIELD=VALUE,FIELD=VALUE with each field once; "
                "write a value with a comma as JSON"
            )
            raise BucketsError(message)
        key[field.strip()] = _typed(value, kinds.get(field.strip()))
    return key


def _typed(value: str, kind: str | None) -> str | int | bool:
    """Read a value of a kind; one that is none stays a text, and does not fit the rule then."""
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind == "long" and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value)
    return value


def read_moment(option: str, text: str, now: datetime) -> datetime:
    """Read a time in ISO 8601, in UTC where it has no zone, or a duration from now.

    Raises:
        BucketsError: it is neither.
    """
    try:
        return now + timedelta(milliseconds=parse_duration_ms(text))
    except ValueError:
        pass
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError:
        message = (
            f"{option}: {short_line(repr(text))} is no time; write it as in 2027-01-02T06:00Z, or how long from now, "
            "as in 24h"
        )
        raise BucketsError(message) from None


def _key_text(key: Mapping[str, str | int | bool] | None) -> str:
    if key is None:
        return "all keys"
    return one_line(", ".join(f"{field} {json.dumps(value, ensure_ascii=False)}" for field, value in key.items()))


def _shown(moment: datetime) -> str:
    return time_text(moment_ms(moment))
