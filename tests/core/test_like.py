"""`LIKE` is what a recursion over text and pattern says; patterns have an end, so that texts take no long."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buckets.expressions.expression import ExpressionError
from buckets.expressions.parser import LONGEST_PATTERN, parse_expression
from buckets.expressions.text_functions import match_like
from tests.core.conditions import is_like

ALPHABET = "ab%_\\\n😀é.*$^ "
TEXTS = st.text(ALPHABET, max_size=8)
PATTERNS = st.text(ALPHABET, max_size=10).filter(lambda text: not text.replace("\\\\", "").endswith("\\"))


@given(TEXTS, PATTERNS)
@example("a%b", "a\\%b")
@example("a\\b", "a\\\\b")
@example("aab", "%_ab")
@example("abab", "a%_b%b")
@example("a\n", "a\\%%")
def test_a_text_matches_where_the_recursion_says_so(text, pattern):
    expected = is_like(text, pattern)
    for written in (pattern, pattern if "\\" in pattern else pattern.replace("a", "\\a")):
        assert match_like(pa.array([text, None, text]), written).to_pylist() == [expected, None, expected]
        assert match_like(pa.scalar(text), written).as_py() == expected


def test_a_pattern_is_not_longer_than_the_limit(as_worded):
    assert parse_expression(f"a LIKE '{'x' * LONGEST_PATTERN}'")
    with pytest.raises(ExpressionError, check=as_worded):
        parse_expression(f"a LIKE '{'x' * (LONGEST_PATTERN + 1)}'")
