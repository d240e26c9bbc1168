"""The report of rule tests as JUnit XML, which CI servers show."""

from collections.abc import Sequence
from xml.etree import ElementTree

from buckets.printable import one_line
from buckets.rule_tests.tester import RuleTestOutcome


def junit_report(outcomes: Sequence[RuleTestOutcome], seconds: float) -> str:
    """Outcomes as XML: a suite a rule file, a case a test."""
    root = ElementTree.Element(
        "testsuites", _counts(outcomes) | {"name": "buckets rules test", "time": f"{seconds:.3f}"}
    )
    for file in dict.fromkeys(each.file for each in outcomes):
        own = [each for each in outcomes if each.file == file]
        suite = ElementTree.SubElement(root, "testsuite", {"name": _xml_text(file)} | _counts(own))
        for each in own:
            _add_case(suite, each)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(outcomes: Sequence[RuleTestOutcome]) -> dict[str, str]:
    statuses = [each.status for each in outcomes]
    counted = {"tests": len(statuses), "failures": statuses.count("failed"), "skipped": statuses.count("skipped")}
    return {name: str(count) for name, count in counted.items()} | {"errors": "0"}


def _add_case(suite: ElementTree.Element, outcome: RuleTestOutcome) -> None:
    named = {"classname": ", ".join(outcome.rules) or "deleted rules", "name": outcome.name, "file": outcome.file}
    attributes = {name: _xml_text(text) for name, text in named.items()} | {"line": str(outcome.line)}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if outcome.status == "skipped":
        ElementTree.SubElement(case, "skipped", {"message": "the rules are deleted"})
    if outcome.failures:
        lines = [_xml_text(f"{outcome.file}:{each.line}: {each.text}") for each in outcome.failures]
        ElementTree.SubElement(case, "failure", {"message": lines[0]}).text = "\n".join(lines)


def _xml_text(text: str) -> str:
    """A text without characters that XML cannot hold."""
    return one_line(text)
