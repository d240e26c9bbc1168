"""Expectations of a backtest as JUnit XML, which CI servers show: a case for each."""

from collections.abc import Sequence
from xml.etree import ElementTree

from buckets.history.backtest.expectation import CheckedExpectation
from buckets.printable import one_line


def junit_of_expectations(outcomes: Sequence[CheckedExpectation], rules: str, seconds: float) -> str:
    """Outcomes as XML.

    Args:
        outcomes: of all expectations, in their order.
        rules: the file of the rules, which is the suite.
        seconds: how long the backtest took.
    """
    failed = sum(not each.is_met for each in outcomes)
    counts = {"tests": str(len(outcomes)), "failures": str(failed), "errors": "0", "skipped": "0"}
    time = {"time": f"{seconds:.3f}"}
    root = ElementTree.Element("testsuites", {"name": "buckets backtest"} | counts | time)
    suite = ElementTree.SubElement(root, "testsuite", {"name": one_line(rules)} | counts | time)
    for each in outcomes:
        text = one_line(each.expectation.text)
        case = ElementTree.SubElement(suite, "testcase", {"classname": "backtest", "name": text})
        if not each.is_met:
            found = one_line(f"expected {each.expectation.text}; it {each.found}")
            ElementTree.SubElement(case, "failure", {"message": found}).text = found
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
