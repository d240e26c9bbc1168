"""Conditions in English: how they read, that different ones read differently, and that each stays on one line."""

from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.expression import Expression, ExpressionError, normalise
from buckets.expressions.parser import parse_expression
from buckets.expressions.wording import in_words
from tests.core.conditions import CONDITIONS, TEXTS_OF_ANY_KIND
from tests.laws import examples


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recent > 5 * usual AND payments >= 10", "recent is above 5 times usual and payments is at least 10"),
        ("usual * 0.5 > recent", "0.5 times usual is above recent"),
        ("recent < 5000 OR recent <= -1234567.5", "recent is below 5,000 or recent is at most -1,234,567.5"),
        ("recent = 10 AND usual <> 10.00", "recent is 10 and usual is not 10"),
        ("recent = usual OR recent != usual", "recent equals usual or recent differs from usual"),
        ("recent BETWEEN 1 AND 2", "recent is at least 1 and recent is at most 2"),
        ("recent / usual > 2", "recent divided by usual is above 2"),
        ("ratio(recent, usual) > 2", "recent divided by usual is above 2"),
        ("zscore(amount, usual, spread) > 3", "zscore(amount, usual, spread) is above 3"),
        ("recent + usual - 5 > 0", "recent + usual - 5 is above 0"),
        ("recent - (usual - 5) > 0", "recent - (usual - 5) is above 0"),
        ("recent + 5 * usual > 0", "recent + (5 times usual) is above 0"),
        ("(recent + usual) * 5 > 0", "5 times (recent + usual) is above 0"),
        ("recent * usual * spread > 0", "recent * usual * spread is above 0"),
        ("amount % 100 = 0", "amount % 100 is 0"),
        ("-(amount - 1) > abs(usual)", "minus (amount - 1) is above abs(usual)"),
        ("kind = 'CRD'", "kind is CRD"),
        ("kind = other", "kind equals other"),
        ("kind = 'true' OR kind != '5'", 'kind is "true" or kind is not "5"'),
        ("kind = 'at night'", 'kind is "at night"'),
        ("kind IN ('FR', 'DE')", "kind is one of FR, DE"),
        ("kind NOT IN ('FR', 'a, b')", 'kind is none of FR, "a, b"'),
        ("amount IN (1000, 2)", "amount is one of 1,000, 2"),
        ("kind LIKE 'FR%' OR kind NOT LIKE '\\'%'", "kind matches 'FR%' or kind does not match '\\'%'"),
        ("kind IS NULL OR cardId IS NOT NULL", "kind is missing or cardId is not missing"),
        ("first_ever", "first_ever is true"),
        ("NOT first_ever", "not (first_ever is true)"),
        ("first_ever = FALSE", "first_ever is false"),
        ("NOT (recent > 1 AND usual > 1)", "not (recent is above 1 and usual is above 1)"),
        ("a AND (b OR c)", "a is true and (b is true or c is true)"),
        ("a AND b OR c", "(a is true and b is true) or c is true"),
        ("a AND b AND c", "a is true and b is true and c is true"),
        ("(recent > 1) = vip", "(recent is above 1) equals vip"),
        ("hour(at) >= 22", "hour of at is at least 22"),
        ("hour(at AT TIME ZONE 'Europe/Berlin') < 6", "hour of at in Europe/Berlin is below 6"),
        ("dayofweek(at) IN (1, 7)", "at is on a weekend"),
        ("NOT is_weekend(at AT TIME ZONE 'Asia/Tokyo')", "at in Asia/Tokyo is not on a weekend"),
        ("dayofweek(at) IN (6, 7)", "day of the week of at is one of 6, 7"),
        ("date(at) IN LIST holidays", "date of at is in the list holidays"),
        ("day(at) + month(at) = minute(at)", "(day of the month of at) + (month of at) equals minute of at"),
        ("length(trim(kind)) + 1 > 5", "(length of trim(kind)) + 1 is above 5"),
        ("coalesce(recent, 0) > 1", "coalesce(recent, 0) is above 1"),
        ("coalesce(kind, 'FR') = 'FR'", 'coalesce(kind, "FR") is FR'),
        ("coalesce(amount IN (1, 2), vip)", "coalesce((amount is one of 1, 2), vip) is true"),
        ("`country code` = 'FR' AND `and`", "`country code` is FR and `and` is true"),
        ("TRUE OR vip", "true or vip is true"),
        (
            "kind ILIKE 'fr%' OR kind NOT ILIKE 'a'",
            "kind matches 'fr%' in any case or kind does not match 'a' in any case",
        ),
        ("kind REGEXP '^a' OR kind NOT REGEXP 'b'", "kind holds something like '^a' or kind holds nothing like 'b'"),
        ("kind || '-' || other > 'FR'", 'concat(kind, "-", other) is above "FR"'),
        (
            "CASE WHEN vip THEN 1 WHEN kind IN ('a', 'b') THEN amount + 1 ELSE 0 END > 5",
            "(1 if vip is true; amount + 1 if kind is one of a, b; else 0) is above 5",
        ),
        ("CASE kind WHEN 'a' THEN vip END", "(vip if kind is a) is true"),
        ("round(greatest(amount, 1), 2) > sqrt(usual)", "round(greatest(amount, 1), 2) is above sqrt(usual)"),
    ],
)
def test_examples(text, said):
    assert in_words(parse_expression(text)) == said


def test_words_stand_for_fields():
    when = parse_expression("recent > 5 * usual AND payments >= 10")
    values = {"recent": "recent (8,120.00)", "usual": "usual (310.25)"}
    alert = "recent (8,120.00) is above 5 times usual (310.25) and payments is at least 10"
    assert in_words(when, values) == alert
    assert in_words(when, lambda name: values.get(name, name)) == alert
    assert in_words(parse_expression("a > 1"), {"a": "the sum\nof b"}) == "the sum\\nof b is above 1"


# --- all conditions that can be made of little ------------------------------------------------------------------


def of(operator: str, *operands: Expression) -> Expression:
    return Expression(operator, operands)


def field(name: str) -> Expression:
    return Expression("field", value=name)


def joined(operators: tuple[str, ...], *choices: list[Expression]) -> list[Expression]:
    return [of(operator, *operands) for operator in operators for operands in product(*choices)]


ONE, TWO = (Expression("number", value=Decimal(number)) for number in (1, -2))
BINARY = (*"+-*/%", "ratio", "coalesce")


def small_values() -> list[Expression]:
    simple = [field("a"), field("b"), ONE, TWO]
    minus = [each for each in simple if each.operator == "field"]
    deeper = joined(BINARY, simple, simple) + joined(("negate",), minus) + joined(("abs",), simple)
    deepest = (
        joined(BINARY[:5], deeper, simple) + joined(BINARY[:5], simple, deeper) + joined(("negate", "abs"), deeper)
    )
    cases = joined(("case",), [field("v"), field("w")], simple) + joined(("case",), [field("v")], simple, simple)
    cases += joined(("case",), [of("=", field("a"), ONE), field("v")], [ONE, TWO], [field("v")], [ONE, TWO])
    return simple + deeper + deepest + cases + joined(("*",), cases, [ONE, TWO, field("a")])


def small_conditions() -> list[Expression]:
    texts = [
        field("k"),
        *(Expression("text", value=text) for text in ("k", "true", "missing", "1", "one of 1", "a, b")),
    ]
    flags = [field("v"), field("is"), Expression("boolean", value=True)]
    simple = joined(("=", "!="), texts, texts) + joined(("=", "!="), flags, flags) + joined(("is_null",), texts + flags)
    simple += joined(("in",), [field("k"), field("v")], texts[1:], texts[1:]) + flags
    patterns = ("k", "%", "'", "\\'", "\n", "\\n")
    simple += [Expression(each, (field("k"),), text) for each in ("like", "ilike", "regexp") for text in patterns]
    simple += joined(("<",), joined(("concat",), texts, texts[:3]), texts[:2]) + joined(("case",), flags, flags)
    few = [of(">", field("a"), ONE), of("in", field("a"), ONE, TWO), of("is_null", field("a")), *flags[:2]]
    deeper = joined(("and", "or", "="), few, few) + joined(("not", "is_null"), few) + joined(("coalesce",), few, few)
    deepest = joined(("and", "or", "=", "coalesce"), deeper, few) + joined(("and", "or", "="), few, deeper)
    return simple + deeper + deepest + joined(("not", "is_null"), simple + deeper)


def test_conditions_that_read_alike_are_one():
    values = small_values()
    conditions = [*(of(">", each, ONE) for each in values), *(of("=", field("a"), each) for each in values)]
    read: dict[str, Expression] = {}
    for condition in [*conditions, *small_conditions()]:
        one_form = normalise(condition)
        assert read.setdefault(in_words(condition), one_form) == one_form, in_words(condition)


@given(st.text(max_size=8), st.text(max_size=8))
def test_any_names_and_any_texts_are_told_apart(one, other):
    name, text = field(one), Expression("text", value=one)
    same = one == other
    assert (in_words(name) == in_words(field(other))) == same
    for operator in ("=", "in"):
        said, other_said = (in_words(of(operator, field("a"), Expression("text", value=each))) for each in (one, other))
        assert (said == other_said) == same
    assert in_words(of("=", field("a"), name)) != in_words(of("=", field("a"), text))


@settings(max_examples=examples(300))
@given(CONDITIONS, st.dictionaries(st.sampled_from(["kind", "amount", "at"]), st.text()))
def test_any_condition_is_one_line(expression, words):
    for said in (in_words(expression), in_words(normalise(expression)), in_words(expression, words)):
        assert said
        assert said.isprintable() or all(each.isprintable() or each.isspace() for each in said)
        assert len(said.splitlines()) == 1


@settings(max_examples=examples(1000))
@given(TEXTS_OF_ANY_KIND)
def test_any_text_that_can_be_read_can_be_said(text):
    try:
        expression = parse_expression(text)
    except ExpressionError:
        return
    assert len(in_words(expression).splitlines()) == 1
