"""Files into which commands write what they find, also as JUnit XML, which CI servers show."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from buckets.cli.console import echo
from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.printable import one_line
from buckets.rule_files.yaml_rules import rule_files
from buckets.stores.location import location

if TYPE_CHECKING:
    from buckets.history.backtest.report import CheckedExpectation
    from buckets.rule_tests.tester import RuleTestOutcome


def check_result_files(results: Mapping[str, Path | None], inputs: Iterable[Path | None]) -> None:
    """See that no result, by the option that names it, is one of the files and folders that a command reads."""
    read = {location(str(path)).resolve() for path in inputs if path is not None}
    for option, given in results.items():
        path = None if given is None else location(str(given))
        if path is not None and path.exists():
            resolved = path.resolve()
            if not read.isdisjoint((resolved, *resolved.parents)):
                message = f"{option} {path}: is read by this command, and would be replaced; name another file"
                raise BucketsError(message)


def check_new_file(out: Path | None) -> None:
    """See that the file of `--out`, if there is one, is a new one."""
    if out is not None and location(str(out)).exists():
        message = f"--out {out}: exists already; name a new file"
        raise BucketsError(message)


def job_inputs(conf: Path, job: Job) -> Iterator[Path]:
    """Return the files and folders of a job, its output left out."""
    settings = job.settings
    yield conf
    yield job.schema_path
    yield job.checkpoint
    paths = [settings.source.path, *(each.path for each in settings.lists.values())]
    yield from (location(path) for path in paths if path)
    if settings.archive is not None:
        yield location(settings.archive.path)
    if settings.rules.path is not None:
        yield from rule_files(location(settings.rules.path))


def write_result(option: str, path: Path, text: str) -> None:
    """Write a file, or an object of a store, whole or not at all."""
    path = location(str(path))
    try:
        write_whole(path, text)
    except OSError as error:
        message = f"{option} {path}: cannot be written ({error.strerror}); name a file in a folder that is yours"
        raise BucketsError(message) from None


def write_or_print(out: Path | None, text: str, note: str) -> None:
    """Write a text into the file of `--out` and say so, or print it where there is none."""
    if out is None:
        echo(text, nl=False)
    else:
        write_result("--out", out, text)
        echo(note)


def junit_report(outcomes: Iterable["RuleTestOutcome"], seconds: float) -> str:
    """Return tests of rules as XML: a suite a rule file, a case a test."""
    suites: dict[str, list[ElementTree.Element]] = {}
    for outcome in outcomes:
        attributes = {"classname": ", ".join(outcome.rules) or "deleted rules", "name": outcome.name}
        case = _element("testcase", attributes | {"file": outcome.file, "line": str(outcome.line)})
        if outcome.status == "skipped":
            case.append(_element("skipped", {"message": "the rules are deleted"}))
        _add_failure(case, [f"{outcome.file}:{failure.line}: {failure.text}" for failure in outcome.failures])
        suites.setdefault(outcome.file, []).append(case)
    return _report("buckets rules test", suites, seconds)


def junit_of_expectations(outcomes: Iterable["CheckedExpectation"], rules: str, seconds: float) -> str:
    """Return expectations as XML: one suite, which is the file of the rules, and a case for each."""
    cases = []
    for outcome in outcomes:
        text = outcome.expectation.text
        cases.append(_element("testcase", {"classname": "backtest", "name": text}))
        _add_failure(cases[-1], [] if outcome.is_met else [f"expected {text}; it {outcome.found}"])
    return _report("buckets backtest", {rules: cases}, seconds)


def _element(tag: str, attributes: Mapping[str, str]) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: one_line(text) for name, text in attributes.items()})


def _add_failure(case: ElementTree.Element, lines: Sequence[str]) -> None:
    if lines:
        failure = _element("failure", {"message": lines[0]})
        failure.text = "\n".join(map(one_line, lines))
        case.append(failure)


def _report(title: str, suites: Mapping[str, list[ElementTree.Element]], seconds: float) -> str:
    def counts(cases: list[ElementTree.Element]) -> dict[str, str]:
        failures, skipped = (sum(case.find(tag) is not None for case in cases) for tag in ("failure", "skipped"))
        return {"tests": f"{len(cases)}", "failures": f"{failures}", "skipped": f"{skipped}", "errors": "0"}

    time, every = {"time": f"{seconds:.3f}"}, [case for cases in suites.values() for case in cases]
    root = _element("testsuites", {"name": title} | counts(every) | time)
    for name, cases in suites.items():
        suite = _element("testsuite", {"name": name} | counts(cases) | (time if len(suites) == 1 else {}))
        suite.extend(cases)
        root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
