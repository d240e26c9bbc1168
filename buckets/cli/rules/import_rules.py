"""The command `buckets rules import`: rules of other systems as a rule file."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import echo
from buckets.cli.options import SchemaFile
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.errors import BucketsError
from buckets.events.schema import load_event_schema
from buckets.printable import counted
from buckets.rule_files.flink_rules import holds_flink_rules, read_flink_rules
from buckets.rule_files.yaml_editor import rules_text
from buckets.yaml_file import read_text


def import_rules(
    file: Annotated[Path, typer.Argument(help="Messages of the Flink demo: a JSON list, JSON lines, or plain lines.")],
    out: Annotated[Path | None, typer.Option(help="A new file; without it, the rules are printed.")] = None,
    schema: SchemaFile = None,
) -> None:
    """Make a rule file of the rules of Flink's fraud detection demo.

    Messages count in their order, as in a topic: a later one replaces an
    earlier one of the same rule, DELETE takes it away, DELETE_RULES_ALL all
    before it. Other commands change no rule, and are named on standard error.

    \b
    Examples:
      buckets rules import conf/flink-demo-rules.json
      buckets rules import exported.jsonl --schema my-schema.yaml --out my-rules.yaml
    """  # noqa: D301 - click needs the backspace itself
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
