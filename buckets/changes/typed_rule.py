"""A rule as typed by a person, and the results of its checks and tests."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from buckets.clock import epoch_ms
from buckets.config.job import Job
from buckets.config.lists import list_fault
from buckets.errors import BucketsError
from buckets.lint.lint import look
from buckets.lint.subject import Subject
from buckets.rule_files.rule_tests import GivenFile
from buckets.rule_files.yaml_rules import RuleFile, read_rule_file, read_rule_files
from buckets.rule_tests.tester import RuleTester, RuleTestOutcome
from buckets.stores.location import location

_TYPED = Path("typed.yaml")  # Where a typed text lies in errors, before they are made errors of a text


def read_rule(text: str, job: Job) -> RuleFile:
    """Parse a text that holds one rule, as in a rule file, with or without tests.

    BucketsError names the line if it does not hold one valid rule, or a test names a file.
    """
    try:
        file = read_rule_file(_TYPED, text.replace("\r\n", "\n"), job.event_schema)
        for index, test in enumerate(file.tests):
            if isinstance(test.given, GivenFile):
                reason = "a text that is typed names no files, which are those of this machine; write the events here"
                raise file.fault(("tests", index, "given", "file"), reason)
    except BucketsError as error:
        raise _of_text(error, _TYPED) from None
    if len(file.rules) != 1:
        message = f"{len(file.rules)} rules are written; write one here, and several with `buckets rules apply`"
        raise BucketsError(message)
    fault = list_fault(file.rules[0], job.settings.lists)
    if fault is not None:
        raise BucketsError(fault)
    return file


def findings_of(typed: RuleFile, job: Job) -> list[dict[str, Any]]:
    """Return the faults of a valid rule, as in `buckets rules check`."""
    rule = typed.rules[0]
    written = {rule.rule_id: typed.written(rule.rule_id)}
    report = look(Subject((rule,), epoch_ms(), job.event_schema, job.settings.engine, None, written, is_part=True))
    return [
        {
            "code": finding.code.code,
            "level": finding.code.level,
            "line": typed.rule_line(rule.rule_id, finding.path),
            "message": finding.message,
        }
        for finding in report.findings
    ]


def outcomes_of(typed: RuleFile, job: Job) -> list[RuleTestOutcome]:
    """Run the tests of a rule: those typed with it, and those in its file about it alone.

    BucketsError if a test does not fit the events or the rule.
    """
    path, (rule,), outcomes = job.settings.rules.path, typed.rules, []
    try:
        kept = () if path is None else read_rule_files(location(path), job.event_schema)
        for file in (typed, *kept):
            if any(there.rule_id == rule.rule_id for there in file.rules):
                rules = tuple(rule if there.rule_id == rule.rule_id else there for there in file.rules)
                tester = RuleTester(replace(file, rules=rules), job.event_schema, job.settings.engine)
                own = (at for at, test in enumerate(file.tests) if tester.rules_of(test) == (rule.rule_id,))
                outcomes += [tester.run(at) for at in own]
    except BucketsError as error:
        raise _of_text(error, typed.path) from None
    return outcomes


def _of_text(error: BucketsError, path: Path) -> BucketsError:
    """Convert an error about a rule file to one about the typed text, with the line if known."""
    name = f"rule file {path}:"
    line = re.sub(rf"^{re.escape(name)}(?=\d)", "line ", error.message)
    return BucketsError(re.sub(rf"^{re.escape(name)}", "the text:", line))
