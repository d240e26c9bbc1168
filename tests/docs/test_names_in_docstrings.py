"""Docstrings and comments name what there is: a name that was changed in the code is not left over in them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import buckets

ROOT = Path(buckets.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
WORD = re.compile(r"\w+")
QUOTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+|[A-Z][A-Z_]{2,})`")
"""A dotted name or a constant in backticks."""
CLASS = re.compile(r"(?<![\w.`<])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+(?![\w.`(])")
ELSEWHERE = frozenset({"NUMBA_CACHE_DIR", "AWS_ACCESS_KEY_ID", "AWS_REGION", "RULE", "FEATURE"})
"""Names that others have, and what stands for one."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def docstrings(file: Path) -> Iterator[ast.Constant]:
    """The texts that stand alone."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


@cache
def known() -> frozenset[str]:
    """All words of the code itself: names, and those in its texts; and the names of files."""
    words = {part for file in FILES for part in WORD.findall(file.relative_to(ROOT).as_posix())}
    for file in FILES:
        told = {id(text) for text in docstrings(file)}
        for node in ast.walk(parsed(file)):
            for _, value in ast.iter_fields(node):
                if isinstance(value, str) and id(node) not in told:
                    words.update(WORD.findall(value))
    return frozenset(words)


def test_a_name_in_backticks_is_one_of_the_code():
    left_over = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in FILES
        for text in docstrings(file)
        for name in QUOTED.findall(text.value)
        if set(name.split(".")) - known() - ELSEWHERE
    ]
    assert left_over == []


def test_a_sentence_does_not_begin_with_the_name_of_a_class():
    """What a change of a class's name leaves in prose, where a word had been that was the same."""
    classes = {node.name for file in FILES for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef)}
    left_over = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in FILES
        for text in docstrings(file)
        for line in text.value.splitlines()
        for found in CLASS.finditer(line)
        if found[0] in classes and not found[0].endswith("Error") and not line[found.end() :].startswith(":")
        if "►" not in line
    ]
    assert left_over == []
