"""Checks a configuration and the files that it names, and finds all that is wrong, not only the first fault."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from buckets.config.environment import from_environment
from buckets.config.job import (
    WHAT,
    Check,
    Job,
    group_checks,
    rule_checks,
    schema_checks,
    settings_checks,
    with_absolute_paths,
)
from buckets.config.settings import JobSettings
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.printable import counted
from buckets.rule_files.yaml_rules import read_rules
from buckets.rules.rule import Rule
from buckets.stores.location import location
from buckets.yaml_file import load_mapping, read_model


@dataclass(frozen=True)
class Answer:
    """What was found of one thing."""

    thing: str  # what was looked at, as `topic transactions`
    where: str = ""  # its file, folder or table; empty for none
    note: str = ""  # what is there, where nothing is wrong
    faults: tuple[str, ...] = ()  # what is wrong with it, a line each

    @property
    def is_ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.faults


def ask(thing: str, where: str, look: Callable[[], str]) -> Answer:
    """Look at a thing."""
    try:
        return Answer(thing, where, look())
    except BucketsError as error:
        return Answer(thing, where, faults=(error.message,))
    except OSError as error:
        return Answer(thing, where, faults=(f"{where}: cannot be read ({error.strerror}); see who may",))


def wrong(thing: str, where: Path, faults: Iterable[BucketsError]) -> Answer:
    """Return the answer of a file with faults, each of them once."""
    return Answer(thing, str(where), faults=tuple(dict.fromkeys(fault.message for fault in faults)))


RULES = "rules"


def check_configuration(path: Path) -> tuple[Job | None, list[Answer]]:
    """Check a configuration with its event schema and its rules; nothing is connected to.

    Returns:
        The job, None where something is wrong; and an answer for each file.
    """
    written, faults = read_model(path, JobSettings, WHAT)
    settings = None if written is None else with_absolute_paths(path, written)
    if settings is not None:
        faults += _failed(settings_checks(path, settings))
    schema_path, rules_path = _named_files(path)
    others: list[Answer] = []
    schema: EventSchema | None = None
    rules: tuple[Rule, ...] = ()
    if schema_path is not None:
        schema, of_schema = read_model(schema_path, EventSchema, "event schema")
        if schema is not None and settings is not None:
            faults += _failed(schema_checks(path, settings, schema))
        others.append(wrong("event schema", schema_path, of_schema) if schema is None else _schema(schema_path, schema))
    if rules_path is not None:
        rules, of_rules = read_rules(rules_path, schema)
        if not of_rules and settings is not None and schema is not None:
            faults += _failed(group_checks(path, settings, schema, rules))
            of_rules += _failed(rule_checks(path, settings, schema, rules))
        others.append(wrong(RULES, rules_path, of_rules) if of_rules else _rules(rules_path, len(rules)))
    answers = [wrong(WHAT, path, faults) if faults else Answer(WHAT, str(path), "valid"), *others]
    if settings is None or schema is None or not all(answer.is_ok for answer in answers):
        return None, answers
    return Job.of(path, settings, schema, rules), answers


def faults_beside_rules(path: Path) -> list[str]:
    """Return what is wrong with a configuration and its event schema, whatever its rules are like."""
    _, answers = check_configuration(path)
    return [fault for answer in answers if answer.thing != RULES for fault in answer.faults]


def _failed(checks: Iterable[Check]) -> list[BucketsError]:
    """Return what checks raise."""
    faults = []
    for check in checks:
        try:
            check()
        except BucketsError as error:
            faults.append(error)
    return faults


def _named_files(path: Path) -> tuple[Path | None, Path | None]:
    """Return the event schema and the rules that a configuration names, also one that is not valid; None for none."""
    try:
        data, _ = load_mapping(path, WHAT)
        rules = data.get("rules")
        names = data.get("schema"), rules.get("path") if isinstance(rules, dict) else rules
        schema_path, rules_path = (
            location(from_environment(name), path.resolve().parent) if isinstance(name, str) and name else None
            for name in names
        )
    except (BucketsError, ValueError):
        return None, None
    return schema_path, rules_path


def _schema(path: Path, schema: EventSchema) -> Answer:
    note = f"{schema.name}, version {schema.version}: {len(schema.field_names):,} fields"
    return Answer("event schema", str(path), note)


def _rules(path: Path, count: int) -> Answer:
    return Answer(RULES, str(path), f"{counted(count, 'rule')} {'is' if count == 1 else 'are'} valid")
