"""Names: what the documentation names is there, and what is there is used."""

import ast
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import buckets
from buckets.cli import commands

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "buckets"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
PAGES = sorted((ROOT / "docs" / "pages").rglob("*.md"))
TEXTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", PACKAGE / "DESIGN.md", *PAGES)
QUOTED = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
FILES = {
    "cfg",
    "gz",
    "html",
    "json",
    "jsonl",
    "lock",
    "log",
    "md",
    "pem",
    "pid",
    "properties",
    "py",
    "toml",
    "yaml",
    "zst",
}
ELSEWHERE = {
    "customer",
    "envelope",
    "audit",
    "delta",
    "spark",
    "fs",
    "fetch",
    "kafka",
    "state",
    "engine",
    "precision",
    "rules",
    "source",
    "output",
    "trigger",
    "features",
    "RULE",
    "train",
    "io",  # types of Debezium and Kafka Connect
    "org",
}
"""First words of settings, of columns and of files, which are written like attributes of modules."""
CALLED_BY_OTHERS = {
    "AGGREGATE",  # the registry of aggregates, which asks each module for it
    "getCondition",  # who catches errors as those of PySpark
    "exception",  # who looks at a query as at one of PySpark
    "for_each_batch",  # who streams a DataFrame
    "write_delta",
    "init",  # Spark's StatefulProcessor
    "handleInputRows",
    "yaml_implicit_resolvers",  # PyYAML's loaders
    "yaml_constructors",
    "construct_mapping",
    "from_function",  # numba's cache locators
    "get_cache_path",
    "get_disambiguator",
    "get_source_stamp",
    "define_pipelines",  # its compilers
    "inner_models",  # its models of data
    "on_start",  # numba's listeners
    "on_end",
    "seekable",  # Python's readers of files
    "readinto",
    "is_absolute",  # its paths
    "do_GET",  # Python's HTTP server
    "log_message",
    "handle_error",
    "service_actions",
    "collect",  # the client of Prometheus
}


def strings(tree: ast.Module) -> Iterator[str]:
    """Docstrings, also those after an assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements bind: functions, classes, variables and imports."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom):
            yield from (each.asname or each.name for each in node.names)


MODULES: dict[str, set[str]] = {}
for path, tree in TREES.items():
    MODULES.setdefault(path.stem, set()).update(bound(tree.body))
CLASSES = {node.name: node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
ATTRIBUTES = {
    name
    for tree in TREES.values()
    for node in ast.walk(tree)
    for name in (
        [node.attr] if isinstance(node, ast.Attribute) else bound(node.body) if isinstance(node, ast.ClassDef) else []
    )
}


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one, in a class, or of some object."""
    first, *others = name.removeprefix("buckets.").split(".")
    found = PACKAGE.joinpath(first, *others)
    if found.is_dir() or found.with_suffix(".py").exists() or (others and others[-1] in FILES):
        return True
    if (PACKAGE / first).is_dir() and len(others) > 1:
        return is_there(".".join(others))
    if name.startswith("buckets."):
        return is_there(".".join([first, *others])) if others else first in buckets.__all__
    if first in CLASSES:
        return others[0] in set(bound(CLASSES[first].body)) | ATTRIBUTES
    if first in MODULES:
        return others[0] in MODULES[first]
    return all(other in ATTRIBUTES for other in others)


def said() -> Iterator[tuple[str, str]]:
    """Where a name in backticks stands, and the name."""
    for path, tree in TREES.items():
        yield from ((str(path.relative_to(ROOT)), name) for text in strings(tree) for name in QUOTED.findall(text))
    for path in TEXTS:
        yield from ((path.name, name) for name in QUOTED.findall(path.read_text(encoding="utf-8")))


def test_every_name_with_a_dot_in_docstrings_and_design_is_there():
    gone = {
        f"{location}: `{name}`"
        for location, name in said()
        if DOTTED.fullmatch(name) and not is_there(name) and name.split(".")[0] not in ELSEWHERE
    }
    assert gone == set()


def words(tree: ast.Module) -> Iterator[str]:
    """Words of the code: identifiers, and words of texts that are no docstrings."""
    documentation = set(strings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in documentation:
            yield from re.findall(r"\w+", node.value)
        yield from (value for _, value in ast.iter_fields(node) if isinstance(value, str))


def test_every_name_of_several_words_in_docstrings_and_design_is_there():
    there = {word for tree in TREES.values() for word in words(tree)} | MODULES.keys()
    shipped = [path for folder in ("conf", "schemas") for path in (ROOT / folder).rglob("*.*")]
    shipped += PACKAGE.rglob("*.yaml")
    there |= {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    there |= {word for path in shipped for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    name = re.compile(r"[a-z]+(?:_[a-z]+)+")
    assert {f"{location}: `{word}`" for location, word in said() if name.fullmatch(word) and word not in there} == set()


def test_no_two_classes_that_others_use_have_one_name():
    """One word, one thing."""
    places: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def glossary() -> dict[str, list[str]]:
    """The words of the glossary, each with what it is in the code."""
    table = (PACKAGE / "DESIGN.md").read_text(encoding="utf-8").split("## Words")[1].split("## Layout")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return {word: QUOTED.findall(code) for word, _, code in rows[2:]}


def test_every_word_of_the_glossary_is_the_name_of_what_it_means_in_the_code():
    words = glossary()
    assert len(words) > 15
    for word, names in words.items():
        stems = {part.strip()[:5].lower() for part in re.split(r",| of ", word)}
        for name in names:
            assert pkgutil.resolve_name(f"buckets.{name}") is not None
            assert any(stem in name.lower().replace("_", "") for stem in stems), f"{word} is called `{name}`"


NO_VERBS = re.compile(
    "A|All|An|As|At|By|Each|Every|Everything|For|From|How|If|In|Its|No|Nothing|Of|On|One|Since|Something|That|The|There|"
    "These|Those|To|What|When|Where|Whether|Which|Who|Why"
)
"""Words with which sentences begin that do not say what a function does."""


def test_docstrings_of_functions_begin_with_what_they_do():
    nouns = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {text.splitlines()[0]}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not any("property" in ast.unparse(of) for of in node.decorator_list)
        if (text := ast.get_docstring(node)) is not None and NO_VERBS.fullmatch(text.split()[0].rstrip(","))
    }
    assert nouns == set()


@pytest.mark.parametrize(
    "name", ["evaluations.expand", "results.explode", "EventSchema.nothing", "buckets.gone", "x.gone_too"]
)
def test_a_name_that_is_not_there_is_noticed(name):
    assert not is_there(name)


KEEPING = {"property", "cached_property", "classmethod", "staticmethod", "compiled", "leaf", "inlined"}
"""Decorators that leave a function to its module."""


def used(tree: ast.Module) -> Iterator[str]:
    """Names that are read somewhere: bare, after a dot, or in an import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def offered(tree: ast.Module) -> Iterator[str]:
    """Names of a module and methods of its classes, without what a decorator hands to somebody else."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) and not is_handed_on(node):
            yield from bound([node])
        if isinstance(node, ast.ClassDef):
            yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef) and not is_handed_on(each))


def is_handed_on(node: ast.stmt) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any(not isinstance(each, ast.Name) or each.id not in KEEPING for each in decorators)


def function_names(homes: commands.Homes) -> Iterator[str]:
    for home in homes.values():
        if isinstance(home, str):
            yield home.rpartition(".")[2]
        else:
            yield from function_names(home.homes)


def test_every_name_is_used_by_the_product_itself():
    others = [path for folder in ("bench", "docs", "jobs") for path in (ROOT / folder).rglob("*.py")]
    trees = [*TREES.values(), *(ast.parse(path.read_text(encoding="utf-8")) for path in others)]
    known = {name for tree in trees for name in used(tree)} | CALLED_BY_OTHERS
    known |= set(function_names(commands.COMMANDS))
    idle = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in TREES.items()
        for name in offered(tree)
        if not name.startswith("__") and name not in known
    }
    assert idle == set()


TRANSLATED = re.compile(
    "which means nothing where|of which there is one|as once they did|it in words|for where that of it|"
    "what is small is|has to be told of|mend what can|meeting of parts|Take it as it is|apart from the driver|"
    "nothing from elsewhere|as the text is long|earlier release|it shall be so|shall fire|whoever looks|all it said|"
    "with all that is in it|stands there twice|stands beside|text stands in|stands in two|into which rules look|"
    "tell its version|tells how it is|mend the (?:filter|order)|closes none|in upper and lower case alone|"
    "rows of it (?:is|are)|several files of it|of which nothing is|bounds take it so|as the job sets it|"
    "(?<!there )is no (?:number of|per cent of|whole|valid|text\\b|field\\b|alert\\b)|told apart",
    re.IGNORECASE,
)
"""Phrases that read like a translation, and have been said better."""


def test_no_sentence_reads_like_a_translation():
    shown = list((PACKAGE / "console").rglob("*.html"))
    texts = {path: path.read_text(encoding="utf-8") for path in (*TREES, *TEXTS, *shown)}
    assert [
        f"{path.relative_to(ROOT)}: {found}" for path, text in texts.items() for found in TRANSLATED.findall(text)
    ] == []
