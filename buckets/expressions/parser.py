"""Parses expressions in Spark's dialect of SQL: sqlglot parses, and a list defines the allowed nodes."""

import functools
import logging
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from itertools import zip_longest
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import Dialect, exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from buckets.errors import first_line
from buckets.expressions.expression import (
    ARITHMETIC,
    COMPARISONS,
    DIALECT,
    FUNCTIONS,
    LIST_NAME,
    NUMBER_FUNCTIONS,
    PATTERN_TESTS,
    RULES_LIST,
    WEEKEND,
    Expression,
    ExpressionError,
    digits_after_point,
    fault,
)
from buckets.expressions.number_functions import plain_text
from buckets.lists.keys import MOST_PARTS
from buckets.numbers.fixed_point import parse_decimal
from buckets.validation import VARIABLE

LONGEST_TEXT: Final = 10_000  # Characters of the longest expression that is read
LONGEST_NUMBER: Final = 64
LONGEST_PATTERN: Final = 250  # Characters of a pattern, with which the time that LIKE and REGEXP take grows
DEEPEST: Final = 50  # The deepest nesting of operators
MOST_DIGITS: Final = 38  # Before the point of a number, and after it
# It warns of words that look like commands, which are refused here.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
_WORD = re.compile(r"\w+")
_LIST = re.compile(r"\w+(\[\d{1,5}\])*")
_INDEX = re.compile(r"\d{1,5}")
_LIST_MARK = "\0list "
"""Prefix, in the brackets of `IN (…)`, of a list for which `IN LIST name` was rewritten; no field begins so."""
_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_JOINING: dict[type[exp.Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
_COMPARED = tuple(kind for kind, operator in _BINARY.items() if operator in COMPARISONS)
_PATTERNS: dict[type[exp.Expr], str] = {exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "regexp"}
_CONDITIONS = (*_COMPARED, exp.Between, exp.In, exp.Is, *_PATTERNS, exp.Not)
"""In `a = b LIKE c` Spark compares first; other databases do not."""
_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.ArraySize: "array_size",
    exp.Coalesce: "coalesce",
    exp.Concat: "concat",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.Greatest: "greatest",
    exp.Hour: "hour",
    exp.Least: "least",
    exp.Length: "length",
    exp.Levenshtein: "levenshtein",
    exp.Ln: "ln",
    exp.Lower: "lower",
    exp.Minute: "minute",
    exp.Month: "month",
    exp.Replace: "replace",
    exp.Round: "round",
    exp.SplitPart: "split_part",
    exp.Sqrt: "sqrt",
    exp.Substring: "substring",
    exp.Trim: "trim",
    exp.TsOrDsToDate: "date",
    exp.Upper: "upper",
    exp.Year: "year",
}
_PARTS: Final = ("expression", "start", "length", "delimiter", "part_index", "replacement", "decimals")
"""Names in sqlglot of a function's operands besides `this` and `expressions`, in order."""
_LOST_BACKSLASH = re.compile(r"(?<!\\)(?:\\\\)*(\\[^\\'\"nrt%_])", re.DOTALL)
_ALLOWED = (
    f"comparisons, AND, OR, NOT, IN, IN LIST, BETWEEN, {', '.join(PATTERN_TESTS.values())}, IS NULL, CASE, "
    f"{' '.join(ARITHMETIC)}, ||, AT TIME ZONE, and functions"
)


@functools.lru_cache(maxsize=65_536)
def parse_expression(text: str) -> Expression:
    """Parse an expression; ExpressionError if it is not SQL, or uses something that is not allowed here."""
    if len(text) > LONGEST_TEXT:
        message = f"has {len(text):,} characters, and at most {LONGEST_TEXT:,} are read; write it in several rules"
        raise ExpressionError(message, LONGEST_TEXT)
    try:
        dialect = Dialect.get_or_raise(DIALECT)
        tokens = dialect.tokenize(text)
        _check_tokens(tokens, text)
        trees = dialect.parser().parse(_lists_in_brackets(_lists_as_names(_dates_as_calls(tokens)), text), text)
    except ExpressionError:
        raise
    except ParseError as error:
        raise _not_sql(error, text) from None
    except TokenError:
        message = "a quote or a comment is opened and not closed"
        raise ExpressionError(message, 0) from None
    except (AttributeError, IndexError, InvalidOperation, KeyError, TypeError, ValueError):  # sqlglot's own faults
        message = "this is not SQL"
        raise ExpressionError(message, 0) from None
    except RecursionError:
        raise _too_deep(0) from None
    if len(trees) != 1 or trees[0] is None:
        message = "is empty; write a condition" if not any(trees) else "holds several statements; write one condition"
        raise ExpressionError(message, 0)
    return _Reader(text).read(trees[0], 0)


def _check_tokens(tokens: list[Token], text: str) -> None:
    """Refuse syntax of other languages, and unbalanced brackets."""
    opened: list[int] = []
    for token in tokens:
        if token.token_type == TokenType.DAMP:
            message = f"{text[token.start : token.end + 1]} is not SQL here; write AND"
            raise ExpressionError(message, token.start)
        if token.token_type == TokenType.L_PAREN:
            opened.append(token.start)
        elif token.token_type == TokenType.R_PAREN:
            if not opened:
                message = "this bracket closes nothing"
                raise ExpressionError(message, token.start)
            opened.pop()
    if opened:
        message = "this bracket is not closed"
        raise ExpressionError(message, opened[-1])
    variable = VARIABLE.search(text)
    if variable is not None and not any(token.start < variable.start() <= token.end for token in tokens):
        message = f"{variable[0]} is not replaced here; write the value itself"
        raise ExpressionError(message, variable.start())


def _dates_as_calls(tokens: list[Token]) -> list[Token]:
    """Replace `date(` by `to_date(` in tokens, since sqlglot turns the former into a CAST and drops extra arguments."""
    return [
        Token(TokenType.VAR, "to_date", token.line, token.col, token.start, token.end)
        if token.token_type == TokenType.DATE and then is not None and then.token_type == TokenType.L_PAREN
        else token
        for token, then in zip_longest(tokens, tokens[1:])
    ]


def _lists_as_names(tokens: list[Token]) -> list[Token]:
    """Merge the `[]` or `[0]` after the name of a list, which is not SQL, into the name."""
    joined: list[Token] = []
    rest = iter(tokens)
    for token in rest:
        name = joined[-1] if joined and token.token_type == TokenType.L_BRACKET else None
        if name is None or _LIST.fullmatch(name.text) is None or name.end - name.start + 1 != len(name.text):
            joined.append(token)
            continue
        inside, closed = "", next(rest, None)
        if closed is not None and _INDEX.fullmatch(closed.text):
            inside, closed = closed.text, next(rest, None)
        whole = f"{name.text}[{inside}]"
        if closed is None or closed.token_type != TokenType.R_BRACKET or closed.end - name.start + 1 != len(whole):
            message = "[] stands behind the name of a list, as in 'X' IN items[].sku, and [0] for its first element"
            raise ExpressionError(message, token.start)
        joined[-1] = Token(TokenType.IDENTIFIER, whole, name.line, name.col, name.start, closed.end)
    return joined


def _lists_in_brackets(tokens: list[Token], text: str) -> list[Token]:
    """Rewrite `IN LIST name`, which is not SQL, to `IN (name)`, with the name marked as a list."""
    bracketed: list[Token] = []
    rest = iter(tokens)
    for token in rest:
        is_list = token.text.upper() == "LIST" and bool(bracketed) and bracketed[-1].token_type == TokenType.IN
        if not is_list or token.token_type == TokenType.IDENTIFIER:
            bracketed.append(token)
            continue
        name, of_rules = next(rest, None), ""
        if name is not None and name.text == RULES_LIST.removesuffix(".") and text[name.end + 1 : name.end + 2] == ".":
            next(rest)
            name, of_rules = next(rest, None), RULES_LIST
        if name is None or name.token_type == TokenType.STRING or LIST_NAME.fullmatch(name.text) is None:
            message = "IN LIST takes the name of a list, as in payerId IN LIST payroll; letters, digits and _"
            raise ExpressionError(message, token.start)
        named = _LIST_MARK + of_rules + name.text
        marks = ((TokenType.L_PAREN, "("), (TokenType.IDENTIFIER, named), (TokenType.R_PAREN, ")"))
        bracketed += [Token(kind, text, name.line, name.col, name.start, name.end) for kind, text in marks]
    return bracketed


def _not_sql(error: ParseError, text: str) -> ExpressionError:
    fault = error.errors[0] if error.errors else {}
    reason = str(fault.get("description") or first_line(error)).rstrip(".")
    if reason.startswith("Required keyword"):
        reason = "an operand is missing"
    elif reason.startswith("Invalid expression") or "Token" in reason:
        reason = "this is not SQL"
    at, word = len(text.rstrip()), str(fault.get("highlight") or "").strip()
    if word and "line" in fault:
        # sqlglot gives the column of a word's last letter.
        line_at = sum(len(line) for line in text.splitlines(keepends=True)[: int(fault["line"]) - 1])
        at, reason = line_at + int(fault["col"]) - len(word), f"{reason}, at {word!r}"
    return ExpressionError(reason, at)


def _too_deep(at: int) -> ExpressionError:
    return ExpressionError(f"more than {DEEPEST} operators stand inside each other; write it in several rules", at)


def _place(node: exp.Expr) -> int:
    """Return the index of the first letter of a node, from the first of its parts that knows it."""
    return min((part.meta["start"] for part in node.walk() if "start" in part.meta), default=0)


def _fault(node: exp.Expr, reason: str) -> ExpressionError:
    return ExpressionError(reason, _place(node))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._readers: dict[type[exp.Expr], Callable[[exp.Expr, int], Expression]] = {
            **dict.fromkeys(_JOINING, self._joined),
            exp.Between: self._between,
            exp.In: self._in,
            exp.Is: self._is_null,
            **dict.fromkeys(_PATTERNS, self._pattern),
            exp.Case: self._case,
            exp.Literal: self._literal,
            exp.RawString: lambda node, depth: Expression("text", value=str(node.this), at=_place(node)),
            exp.AtTimeZone: self._zone,
            exp.Column: self._field,
            exp.Neg: self._negate,
            exp.Tuple: self._stray_tuple,
            exp.Anonymous: self._named_function,
        }

    def read(self, node: exp.Expr, depth: int) -> Expression:
        if depth > DEEPEST:
            raise _too_deep(_place(node))
        depth += 1
        kind = type(node)
        if kind is exp.Paren:
            return self.read(node.this, depth)
        if kind in self._readers:
            return self._readers[kind](node, depth)
        if kind in _BINARY:
            self._only(node, "this", "expression", "typed", "safe")
            if kind in _COMPARED and (type(node.this) in _CONDITIONS or type(node.expression) in _CONDITIONS):
                raise _fault(node, "a condition is compared with something; put brackets round the condition")
            sides = (self.read(node.this, depth), self.read(node.expression, depth))
            return Expression(_BINARY[kind], sides, at=_place(node))
        if kind in _FUNCTIONS:
            return self._function(node, depth)
        if kind is exp.Not:
            return Expression("not", (self.read(node.this, depth),), at=_place(node))
        if kind is exp.Boolean:
            return Expression("boolean", value=bool(node.this), at=_place(node))
        if kind is exp.Null:
            raise _fault(node, "NULL is not a value to compute with; write IS NULL or IS NOT NULL")
        raise self._refused(node)

    def _only(self, node: exp.Expr, *known: str) -> None:
        """Refuse any property of a node that is not understood here."""
        for name, value in node.args.items():
            if value not in (None, False, []) and name not in known:
                raise self._refused(node)

    def _refused(self, node: exp.Expr) -> ExpressionError:
        if isinstance(node, exp.Concat) and not node.args.get("safe"):
            return _fault(node, "two texts stand side by side; write a quote inside a text as \\'")
        at = _place(node)
        known = (type(node) in self._readers and not isinstance(node, exp.Anonymous)) or type(node) in _FUNCTIONS
        if isinstance(node, exp.Command):
            return ExpressionError("this begins with a word of SQL; if it is a field, write it in backticks", 0)
        word = _WORD.match(self._text, at) if "start" in node.meta else None
        called = "CAST" if isinstance(node, exp.Cast) else node.key.upper()
        if isinstance(node, exp.Anonymous):
            called = node.name
        name = called if word is None else word.group()
        said = f"this form of {name} is not known here" if known else f"{name} is not known here"
        there = f"there are {_ALLOWED}"
        if isinstance(node, exp.Func):
            functions = (*FUNCTIONS, "is_weekend", "lookup")
            close = [] if name in functions else get_close_matches(name.lower(), functions, 1, 0.8)
            there = f"did you mean {close[0]}?" if close else f"functions: {', '.join(functions)}"
        return ExpressionError(f"{said}; {there}", at)

    def _joined(self, node: exp.Expr, depth: int) -> Expression:
        parts = tuple(self.read(part, depth) for part in node.flatten())
        return Expression(_JOINING[type(node)], parts, at=_place(node))

    def _between(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "low", "high")
        value, at = self.read(node.this, depth), _place(node)
        low, high = self.read(node.args["low"], depth), self.read(node.args["high"], depth)
        return Expression("and", (Expression(">=", (value, low), at=at), Expression("<=", (value, high), at=at)), at=at)

    def _in(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "expressions", "field")
        if node.args.get("field") is not None:
            return self._in_array(node, depth)
        if not node.expressions:
            raise self._refused(node)
        named = [each.name for each in node.expressions if isinstance(each, exp.Column)]
        if named and named[0].startswith(_LIST_MARK):
            key = self._key(node.this, depth)
            return Expression("in_list", (key,), named[0].removeprefix(_LIST_MARK), at=_place(node))
        members = [self.read(each, depth) for each in node.expressions]
        for member in members:
            if not member.is_literal:
                raise fault(member, "IN takes values such as 'FR' or 100; compare fields with = and OR")
        return Expression("in", (self.read(node.this, depth), *members), at=_place(node))

    def _in_array(self, node: exp.Expr, depth: int) -> Expression:
        array, value = self.read(node.args["field"], depth), self.read(node.this, depth)
        if not array.is_array:
            raise fault(
                array,
                "IN takes values in brackets, as in country IN ('FR', 'DE'), or an array, as in 'X' IN items[].sku",
            )
        if not value.is_literal:
            raise fault(value, f"a value such as 'X' or 100 is looked for in {array.value}, and no field")
        return Expression("in", (array, value), at=_place(node))

    def _is_null(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "expression")
        if not isinstance(node.expression, exp.Null):
            raise _fault(node, "IS takes NULL alone; write `flag` or `NOT flag` for TRUE and FALSE")
        return Expression("is_null", (self.read(node.this, depth),), at=_place(node))

    def _pattern(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "expression", "negate")
        operator, written = _PATTERNS[type(node)], node.expression
        word = PATTERN_TESTS[operator]
        if not (isinstance(written, exp.RawString) or (isinstance(written, exp.Literal) and written.is_string)):
            example = "'^FR[0-9]+$'" if operator == "regexp" else "'FR%', with % for any letters and _ for one"
            raise _fault(node, f"{word} takes a pattern such as {example}")
        pattern = str(written.this)
        if len(pattern) > LONGEST_PATTERN:
            raise _fault(node, f"a pattern of {word} has at most {LONGEST_PATTERN} characters, not {len(pattern):,}")
        if operator == "regexp":
            self._check_regexp(written, pattern)
        found = Expression(operator, (self.read(node.this, depth),), pattern, at=_place(node))
        return Expression("not", (found,), at=found.at) if node.args.get("negate") else found

    def _check_regexp(self, written: exp.Expr, pattern: str) -> None:
        at = _place(written)
        lost = _LOST_BACKSLASH.search(self._text, at, written.meta.get("end", at) + 1)
        if isinstance(written, exp.Literal) and lost is not None:
            raise _fault(written, f"in a text {lost[1]} is {lost[1][1:]} alone; write \\{lost[1]}, or r'…'")
        try:
            pc.match_substring_regex(pa.scalar(""), pattern)
        except ValueError as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise _fault(written, f"no pattern that REGEXP takes, which are those of RE2: {reason}") from None

    def _case(self, node: exp.Expr, depth: int) -> Expression:
        subject, otherwise = node.this, node.args.get("default")
        operands: list[Expression] = []
        for case in node.args["ifs"]:
            when = self.read(case.this, depth)
            if subject is not None:
                when = Expression("=", (self.read(subject, depth), when), at=when.at)
            operands += [when, self.read(case.args["true"], depth)]
        operands += [] if otherwise is None else [self.read(otherwise, depth)]
        return Expression("case", tuple(operands), at=_place(node))

    def _literal(self, node: exp.Expr, depth: int) -> Expression:
        written = str(node.this)
        if node.args["is_string"]:
            return Expression("text", value=written, at=_place(node))
        if len(written) > LONGEST_NUMBER:
            raise _fault(node, f"{written[:LONGEST_NUMBER]}… has more than {MOST_DIGITS} digits")
        try:
            number = plain(parse_decimal(written))
        except ValueError as error:
            raise _fault(node, str(error)) from None
        if number.adjusted() >= MOST_DIGITS or digits_after_point(number) > MOST_DIGITS:
            raise _fault(node, f"{written} has more than {MOST_DIGITS} digits")
        return Expression("number", value=number, at=_place(node))

    def _zone(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "zone")
        zone = node.args["zone"]
        if not (isinstance(zone, exp.Literal) and zone.is_string):
            raise _fault(node, "a time zone is a text such as 'Europe/Berlin'")
        return Expression("zone", (self.read(node.this, depth),), str(zone.this), at=_place(node))

    def _field(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "table", "db", "catalog")
        parts = node.parts if isinstance(node, exp.Column) else []
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            raise self._refused(node)
        # A name with points is the path to a nested field.
        return Expression("field", value=".".join(str(part.this) for part in parts), at=_place(node))

    def _negate(self, node: exp.Expr, depth: int) -> Expression:
        operand = self.read(node.this, depth)
        if isinstance(operand.value, Decimal):
            return Expression("number", value=plain(operand.value.copy_negate()), at=_place(node))
        return Expression("negate", (operand,), at=_place(node))

    def _function(self, node: exp.Expr, depth: int) -> Expression:
        if isinstance(node, exp.Concat) and not node.args.get("safe"):
            raise self._refused(node)
        self._only(node, "this", "expressions", "coalesce_null", "ignore_nulls", "safe", *_PARTS)
        # sqlglot notes that these take the date of a time.
        takes_date = isinstance(node, exp.Day | exp.DayOfMonth | exp.DayOfWeek | exp.Month | exp.Year)
        first = node.this.this if takes_date and isinstance(node.this, exp.TsOrDsToDate) else node.this
        parts = [part for part in (first, *node.expressions, *map(node.args.get, _PARTS)) if part is not None]
        return Expression(_FUNCTIONS[type(node)], tuple(self.read(part, depth) for part in parts), at=_place(node))

    def _named_function(self, node: exp.Expr, depth: int) -> Expression:
        name = node.this.lower() if isinstance(node.this, str) else ""
        if name == "lookup":
            return self._lookup(node, depth)
        if name == "regexp" and len(node.expressions) == 2:
            return self._pattern(exp.RegexpLike(this=node.expressions[0], expression=node.expressions[1]), depth)
        if name == "is_weekend" and len(node.expressions) == 1:
            at = _place(node)
            day = Expression("dayofweek", (self.read(node.expressions[0], depth),), at=at)
            return Expression("in", (day, *WEEKEND), at=at)
        if name in NUMBER_FUNCTIONS:
            self._only(node, "this", "expressions")
            wanted, given = NUMBER_FUNCTIONS[name], len(node.expressions)
            if given != len(wanted):
                reason = f"{name}({', '.join(wanted)}) takes {len(wanted)} numbers, and {given or 'none'} are given"
                raise _fault(node, reason.replace("1 are", "1 is"))
        elif name != "jaro_winkler":
            raise self._refused(node)
        return Expression(name, tuple(self.read(part, depth) for part in node.expressions), at=_place(node))

    def _lookup(self, node: exp.Expr, depth: int) -> Expression:
        self._only(node, "this", "expressions")
        named, *others = node.expressions or [None]
        is_named = isinstance(named, exp.Column) and len(named.parts) == 1 and LIST_NAME.fullmatch(named.name)
        if not is_named or len(others) != 2 or not (isinstance(others[1], exp.Literal) and others[1].is_string):
            raise _fault(
                node,
                "lookup takes a list, a key and the name of a value, as in lookup(merchants, merchantId, 'category')",
            )
        operands = (self._key(others[0], depth), self.read(others[1], depth))
        return Expression("lookup", operands, named.name, at=_place(node))

    def _key(self, node: exp.Expr, depth: int) -> Expression:
        """Return the key of a list: one value, or several in brackets."""
        node = node.unnest()
        if not isinstance(node, exp.Tuple):
            return self.read(node, depth)
        if not 2 <= len(node.expressions) <= MOST_PARTS:
            raise _fault(node, f"the key of a list has 1 to {MOST_PARTS} parts, not {len(node.expressions)}")
        return Expression("tuple", tuple(self.read(part, depth + 1) for part in node.expressions), at=_place(node))

    def _stray_tuple(self, node: exp.Expr, depth: int) -> Expression:
        raise _fault(
            node, "values in brackets are the key of a list alone, as in (payerId, beneficiaryId) IN LIST pairs"
        )


def plain(number: Decimal) -> Decimal:
    """Return a number in its normal form: no exponent, no trailing zeros, no negative zero."""
    return Decimal(plain_text(number))
