"""`LIKE` is what a recursion over text and pattern says, in short patterns and long ones, and is over in one pass."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buckets.expressions.evaluation import like_pattern, match_like
from tests.core.conditions import is_like

ALPHABET = "ab%_\\\n😀é"
TEXTS = st.text(ALPHABET, max_size=8)
PATTERNS = st.text(ALPHABET, max_size=10).filter(lambda text: not text.replace("\\\\", "").endswith("\\"))
LONG = 70


@given(TEXTS, PATTERNS)
@example("a%b", "a\\%b")
@example("a\\b", "a\\\\b")
@example("aab", "%_ab")
@example("abab", "a%_b%b")
def test_a_text_matches_where_the_recursion_says_so(text, pattern):
    expected = is_like(text, pattern)
    texts = pa.array([text, None, text])
    assert like_pattern(pattern).matches(text) == expected
    assert match_like(texts, pattern).to_pylist() == [expected, None, expected]
    # Any number of % says the same as one, and a literal text before both changes nothing.
    for long_pattern, longer in ((pattern.replace("%", "%" * LONG), ""), ("x" * LONG + pattern, "x" * LONG)):
        if len(long_pattern) > LONG and ("\\%" not in pattern or longer):
            given_texts = pa.array([longer + text, None, text])
            found = match_like(given_texts, long_pattern).to_pylist()
            assert found == [expected, None, expected if not longer else is_like(text, long_pattern)]
            assert match_like(pa.scalar(longer + text), long_pattern).as_py() == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 2_400 + "%b",
        "%_a" * 2_400 + "%b",
        "%" + "a_" * 2_400 + "b%",
        "%" + "a" * 4_800 + "b%",
        "_" * 4_800 + "%b%",
    ],
    ids=["many wildcards", "any one in each", "any one in a long piece", "a long piece", "a long beginning"],
)
def test_a_long_pattern_is_over_in_one_pass_over_a_long_text(pattern):
    """A matcher that goes back takes minutes, one that keeps all places of all pieces as long."""
    assert match_like(pa.array(["a" * 500_000]), pattern).to_pylist() == [False]
    assert not like_pattern(pattern).matches("a" * 500_000)
