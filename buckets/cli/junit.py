"""Reports as JUnit XML, which CI servers show: of tests of rules, and of the expectations of a backtest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from buckets.history.backtest.report import CheckedExpectation
from buckets.printable import one_line
from buckets.rule_tests.tester import RuleTestOutcome


@dataclass(frozen=True)
class _Case:
    """A test; it has passed where it has no failure and was not skipped."""

    attributes: Mapping[str, str]
    failure: Sequence[str] = ()
    skipped: str = ""


def junit_report(outcomes: Iterable[RuleTestOutcome], seconds: float) -> str:
    """Return tests of rules as XML: a suite a rule file, a case a test."""
    suites: dict[str, list[_Case]] = {}
    for outcome in outcomes:
        suites.setdefault(outcome.file, []).append(_case_of_test(outcome))
    return _report("buckets rules test", suites, seconds)


def junit_of_expectations(outcomes: Iterable[CheckedExpectation], rules: str, seconds: float) -> str:
    """Return expectations as XML: one suite, which is the file of the rules, and a case for each."""
    cases = []
    for outcome in outcomes:
        text = outcome.expectation.text
        failure = () if outcome.is_met else (f"expected {text}; it {outcome.found}",)
        cases.append(_Case({"classname": "backtest", "name": text}, failure))
    return _report("buckets backtest", {rules: cases}, seconds)


def _case_of_test(outcome: RuleTestOutcome) -> _Case:
    attributes = {"classname": ", ".join(outcome.rules) or "deleted rules", "name": outcome.name}
    place = {"file": outcome.file, "line": str(outcome.line)}
    lines = [f"{outcome.file}:{failure.line}: {failure.text}" for failure in outcome.failures]
    return _Case(attributes | place, lines, "the rules are deleted" if outcome.status == "skipped" else "")


def _report(title: str, suites: Mapping[str, Sequence[_Case]], seconds: float) -> str:
    time, cases = {"time": f"{seconds:.3f}"}, [case for of_suite in suites.values() for case in of_suite]
    root = ElementTree.Element("testsuites", {"name": title} | _counts(cases) | time)
    for name, of_suite in suites.items():
        own_time = time if len(suites) == 1 else {}
        suite = ElementTree.SubElement(root, "testsuite", {"name": one_line(name)} | _counts(of_suite) | own_time)
        for case in of_suite:
            _add_case(suite, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(cases: Sequence[_Case]) -> dict[str, str]:
    failures, skipped = sum(bool(case.failure) for case in cases), sum(bool(case.skipped) for case in cases)
    return {"tests": str(len(cases)), "failures": str(failures), "skipped": str(skipped), "errors": "0"}


def _add_case(suite: ElementTree.Element, case: _Case) -> None:
    attributes = {name: one_line(text) for name, text in case.attributes.items()}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    if case.skipped:
        ElementTree.SubElement(element, "skipped", {"message": case.skipped})
    if case.failure:
        lines = list(map(one_line, case.failure))
        ElementTree.SubElement(element, "failure", {"message": lines[0]}).text = "\n".join(lines)
