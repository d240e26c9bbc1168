"""The commands `buckets rules show`, `schema` and `import`, and rules and their changes as tables and text."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from buckets.cli.console import Terminal, TextTable, echo, echo_json
from buckets.cli.options import SchemaFile, given_rules
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema, load_event_schema
from buckets.moment import time_text
from buckets.printable import capitalised, counted
from buckets.resources import DEMO_RULES
from buckets.rule_files.differences import difference
from buckets.rule_files.flink_rules import holds_flink_rules, read_flink_rules
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text
from buckets.rules.revision import Change, in_one_form
from buckets.rules.rule import Rule, policy_sentence
from buckets.yaml_file import read_text

if TYPE_CHECKING:
    from buckets.changes.origin import KeptRule
    from buckets.changes.versions import Completion


def rules_table(title: str, kept: Sequence["KeptRule"], completions: Mapping[str, "Completion"]) -> TextTable:
    """Return rules as a table, with what is known of their last change."""
    table = TextTable(title, ("Rule", "Alerts when"))
    for last in kept:
        rule = last.rule
        name = f"{rule.rule_id}\n{rule.state}\nversion {rule.version}"
        when = "" if last.time_ms is None else f"{time_text(last.time_ms)} UTC"
        who = ", ".join(part for part in (last.author, when) if part)
        change = ": ".join(part for part in (who, last.reason) if part)
        lines = [
            rule_words(rule),
            f"{capitalised(completions[rule.rule_id].words)}.",
            change and f"Last change: {change}",
        ]
        table.add_row(name, "\n".join(line for line in lines if line), end_section=True)
    return table


def rule_words(rule: Rule) -> str:
    """Return a rule in English, its policy on a line of its own."""
    return "\n".join(part for part in (rule.sentence(), policy_sentence(rule)) if part)


def changes_table(title: str, rule_ids: Iterable[str], made: Iterable[Change], schema: EventSchema) -> TextTable:
    """Return what a command does to rules: each rule, what becomes of it, and what differs."""
    table = TextTable(title, ("Rule", "Change", "What"))
    changes = {change.rule_id: change for change in made}
    for rule_id in rule_ids:
        change = changes.get(rule_id)
        if change is None:
            table.add_row(rule_id, "unchanged", "")
            continue
        what = "new" if change.before is None else "deleted" if change.after is None else "changed"
        before = None if change.before is None else in_one_form(change.before, schema)
        table.add_row(rule_id, what, difference(before, change.after))
    return table


def history_table(title: str, rows: Sequence[dict[str, Any]]) -> TextTable:
    """Return changes that have been made as a table."""
    table = TextTable(title, ("In force (UTC)", "Change"), show_lines=True)
    for row in rows:
        sides = (row["rule_before"], row["rule_after"])
        before, after = (None if rule is None else Rule.model_validate_json(rule) for rule in sides)
        in_force_us = row["in_force_at"]
        since = "" if in_force_us is None else time_text(in_force_us // 1000)
        first = "" if row["first_batch"] is None else f", from batch {row['first_batch']}"
        version = "" if row["rule_version"] is None else f", version {row['rule_version']}"
        lines = [
            f"{row['rule_id'] or 'all'}{version}",
            f"{row['change']}: {difference(before, after)}",
            ": ".join(part for part in (row["author"], row["reason"]) if part),
        ]
        in_force = Text(f"{since}\nrules {row['ruleset_version']}{first}")
        table.add_row(in_force, Text("\n".join(line for line in lines if line)))
    return table


def file_schema(schema: SchemaFile = None) -> None:
    """Print the JSON schema of a rule file, for editors that complete and check what is written.

    With an event schema, it knows the fields. The first line of a rule file
    tells an editor where it is:

      # yaml-language-server: $schema=rules.schema.json

    Examples:
      buckets rules schema --schema schemas/transaction.yaml > rules.schema.json
    """
    echo_json(rule_file_schema(load_event_schema(schema) if schema else None))


def show(
    file: Annotated[
        Path, typer.Argument(help="A rule file, or a folder of them; the rules of the demo by default.")
    ] = DEMO_RULES,
    schema: SchemaFile = None,
) -> None:
    """Show the rules of a file as English sentences.

    Examples:
      buckets rules show
      buckets rules show my-rules.yaml
      buckets rules show conf/rules
    """
    rules = given_rules(file, load_event_schema(schema) if schema else None)
    rows = ((rule.rule_id, str(rule.version), rule.state, rule_words(rule)) for rule in rules)
    Terminal().print(TextTable(f"Rules of {file}", ("Rule", "Version", "State", "Alerts when"), rows))


def import_rules(
    file: Annotated[Path, typer.Argument(help="Messages of the Flink demo: a JSON list, JSON lines, or plain lines.")],
    out: Annotated[Path | None, typer.Option(help="A new file; by default the rules are printed.")] = None,
    schema: SchemaFile = None,
) -> None:
    """Make a rule file of the rules of Flink's fraud detection demo.

    Messages count in their order, as in a topic: a later one replaces an
    earlier one of the same rule, DELETE takes it away, DELETE_RULES_ALL all
    before it. Other commands change no rule, and are named on standard error.

    Examples:
      buckets rules import conf/flink-demo-rules.json
      buckets rules import exported.jsonl --schema my-schema.yaml --out my-rules.yaml
    """
    check_new_file(out)
    text = read_text(file, "rule file")
    if not holds_flink_rules(file, text):
        message = f"rule file {file}: holds no messages of the Flink demo; a YAML rule file needs no import"
        raise BucketsError(message)
    imported = read_flink_rules(file, text, load_event_schema(schema) if schema else None)
    rules = list(imported.rules.values())
    if not rules:
        message = f"rule file {file}: its messages leave no rule; nothing has been written"
        raise BucketsError(message)
    for line, command in imported.commands:
        echo(f"{file}:{line}: {command} changes no rule, and is left out", err=True)
    write_or_print(out, rules_text(rules), f"{out}: {counted(len(rules), 'rule')} of {file}")
