"""An explanation as a page, with a chart of each window."""

from buckets.history.explain.explanation import Explanation
from buckets.history.explain.words import page_values
from buckets.pages.page import render


def page_of(explanation: Explanation) -> str:
    """Return the page, in one file that needs no other."""
    return render("explain.html", **page_values(explanation))
