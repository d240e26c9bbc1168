"""The commands `buckets rules show` and `buckets rules schema`: what a rule file says, and what one may say."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.cli.console import Terminal, TextTable, echo_json
from buckets.cli.options import SchemaFile
from buckets.cli.rules.view import rule_words
from buckets.events.schema import load_event_schema
from buckets.resources import DEMO_RULES
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_rules import load_rule_files


def file_schema(schema: SchemaFile = None) -> None:
    """Print the JSON schema of a rule file, for editors that complete and check what is written.

    With an event schema, it knows the fields. The first line of a rule file
    tells an editor where it is:

      # yaml-language-server: $schema=rules.schema.json

    \b
    Examples:
      buckets rules schema --schema schemas/transaction.yaml > rules.schema.json
    """  # noqa: D301 - click needs the backspace itself
    echo_json(rule_file_schema(load_event_schema(schema) if schema else None))


def show(
    file: Annotated[
        Path, typer.Argument(help="A rule file, or a folder of them; without it, the rules of the demo.")
    ] = DEMO_RULES,
    schema: SchemaFile = None,
) -> None:
    """Show the rules of a file as English sentences.

    \b
    Examples:
      buckets rules show
      buckets rules show my-rules.yaml
      buckets rules show conf/rules
    """  # noqa: D301 - click needs the backspace itself
    rules = load_rule_files(file, load_event_schema(schema) if schema else None)
    table = TextTable(f"Rules of {file}", ("Rule", "Version", "State", "Alerts when"))
    for rule in rules:
        table.add_row(rule.rule_id, str(rule.version), rule.state, rule_words(rule))
    Terminal().print(table)
