"""The command `buckets snooze`: alerts of a rule, or of a key, are held back for a time."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from buckets.changes.snoozing import (
    ChangeOf,
    Key,
    new_snooze,
    read_moment,
    rules_with_snoozes,
    same_key,
    with_ended,
    with_snooze,
)
from buckets.cli.console import TextTable, echo, print_table
from buckets.cli.options import Author, Reason, author_and_reason, key_of, read_option
from buckets.cli.rules.change import Conf, rules_of
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.moment import moment_ms, time_text
from buckets.printable import one_line
from buckets.rules.change import RuleChange
from buckets.rules.revision import names

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
    wanted = None if not key else key_of(key[0], job.event_schema.attributes)
    if list_:
        _list(job, rule, wanted, now)
        return
    if rule is None and wanted is None:
        message = "name a rule with --rule, a key with --key, or both; --list shows the snoozes there are"
        raise BucketsError(message)
    if not end and until is None:
        message = "--until: when is it over? Write a time, as in 2027-01-02T06:00Z, or how long from now, as in 24h"
        raise BucketsError(message)
    signed = author_and_reason(author, reason)
    of = _key_text(wanted)
    last = now if until is None else read_option("--until", until, lambda text: read_moment(text, now))
    if end:
        what = f"snoozes of {of} end at {_shown(last)}"
        _change(job, rule, wanted, signed, lambda kept: with_ended(kept, wanted, last), what)
        return
    asked = {
        "key": wanted,
        "from": None if start is None else read_option("--from", start, lambda text: read_moment(text, now)),
        "until": last,
    }
    new = new_snooze(asked | signed)
    what = f"alerts of {of} are held back until {_shown(last)}"
    _change(job, rule, wanted, signed, lambda kept: with_snooze(kept, new, now), what)


def _change(
    job: Job, rule_id: str | None, key: Key | None, signed: dict[str, Any], change_of: ChangeOf, what: str
) -> None:
    """Put rules with other snoozes where they are kept."""
    kept = rules_of(job)
    changed = rules_with_snoozes(kept, job.event_schema, rule_id, key, change_of)
    kept.change([RuleChange(change="put", rule=rule, **signed) for rule in changed])
    echo(f"{names(rule.rule_id for rule in changed)}: {what}, from the next batch on; written to {kept.name}")


def _list(job: Job, rule_id: str | None, key: Key | None, now: datetime) -> None:
    """Print the snoozes that there are."""
    rules = rules_of(job)
    columns = ("Rule", "Key", "From (UTC)", "Until (UTC)", "Now", "Author", "Reason")
    table = TextTable(one_line(f"Snoozes of {rules.name}"), columns)
    for rule in rules.rules:
        for snooze in rule.snoozes if rule_id in (None, rule.rule_id) else ():
            if key is None or same_key(snooze.key, key):
                is_begun = snooze.start is None or snooze.start <= now
                state = "over" if snooze.until <= now else "in force" if is_begun else "to come"
                start = "" if snooze.start is None else _shown(snooze.start)
                cells = [rule.rule_id, _key_text(snooze.key), start, _shown(snooze.until), state]
                table.add_row(*map(Text, [*cells, snooze.author, snooze.reason]))
    print_table(table, f"no such snoozes in {rules.name}" if rule_id or key else f"no snoozes in {rules.name}")


def _key_text(key: Mapping[str, str | int | bool] | None) -> str:
    if key is None:
        return "all keys"
    return one_line(", ".join(f"{field} {json.dumps(value, ensure_ascii=False)}" for field, value in key.items()))


def _shown(moment: datetime) -> str:
    return time_text(moment_ms(moment))
