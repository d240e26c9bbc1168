"""The commands `buckets rules check` and `buckets rules show`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from buckets.event_schema import load_event_schema
from buckets.rule_file import load_rules
from buckets.rule_set import first_rule_set
from buckets.shipped import DEMO_RULES

rules_app = typer.Typer(help="Check and read rule files.", rich_markup_mode=None)

RulesFile = Annotated[Path, typer.Argument(help="A rule file, as in conf/demo-rules.yaml.")]
SchemaFile = Annotated[
    Path | None, typer.Option(help="An event schema; where given, the fields that rules name are checked against it.")
]


@rules_app.command()
def check(file: RulesFile, schema: SchemaFile = None) -> None:
    """See that every rule of a file is valid.

    \b
    Examples:
      buckets rules check conf/demo-rules.yaml
      buckets rules check my-rules.yaml --schema schemas/transaction.yaml
    """  # noqa: D301 - click needs the backspace itself
    rules = load_rules(file, load_event_schema(schema) if schema else None)
    groups = first_rule_set(rules).groups
    checked = "" if schema else "; fields are not checked: give --schema to check them"
    typer.echo(f"{file}: {len(rules)} rules in {len(groups)} groups are valid{checked}")


@rules_app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A rule file; without it, the rules of the demo.")] = DEMO_RULES,
    schema: SchemaFile = None,
) -> None:
    """Show the rules of a file as English sentences.

    \b
    Examples:
      buckets rules show
      buckets rules show my-rules.yaml
    """  # noqa: D301 - click needs the backspace itself
    rules = load_rules(file, load_event_schema(schema) if schema else None)
    table = Table(title=f"Rules of {file}", title_justify="left")
    for name in ("Rule", "Version", "State", "Alerts when"):
        table.add_column(name, overflow="fold")
    for rule in rules:
        table.add_row(Text(rule.rule_id), str(rule.version), rule.state, Text(rule.sentence()))
    Console().print(table)
