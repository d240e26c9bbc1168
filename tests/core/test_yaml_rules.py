"""Rule files: the good ones are read, and each fault is named by file, line, field and reason."""

import os
import re
import socket
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.rule import Rule
from tests.core.examples import SCHEMA, written_rule
from tests.laws import examples

LAUGHS = "a: &a [" + "x, " * 10 + "]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 10}]\n" for a, b in pairwise("abcdefgh"))
"""Ten lines that stand for a hundred million values."""
GOOD = """\
rules:
  - rule_id: first
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 24h}
    limit: {operator: ">", value: "200000"}
  - rule_id: second
    version: 2
    state: SHADOW
    description: Many small ones
    group_by: [payer, kind]
    where:
      kind: [a, b]
      amount: {"<": 10}
    aggregate: {function: count}
    window: {length: 90s, left: open}
    limit: {operator: ">=", value: 5}
"""


def load(folder: Path, text: str | bytes, schema=None):
    path = folder / "rules.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_rules(path, schema)


def fault(folder: Path, text: str | bytes, schema=None) -> str:
    """What is said of a file, without the name of the file."""
    with pytest.raises(BucketsError) as error:
        load(folder, text, schema)
    message = error.value.message
    assert "\n" not in message
    begin = f"rule file {folder / 'rules.yaml'}:"
    assert message.startswith(begin)
    return message.removeprefix(begin).strip()


WHERE = "group_by: [payer]\n    where: "


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_file_is_read_in_its_order(tmp_path):
    first, second = load(tmp_path, GOOD, SCHEMA)
    assert (first.rule_id, first.version, first.state, first.where) == ("first", 1, "ACTIVE", ())
    assert (first.window.length_ms, first.window.left, first.limit.operator) == (86_400_000, "closed", ">")
    assert first.limit.value == Decimal(200_000)
    assert (second.rule_id, second.version, second.state, second.measure) == ("second", 2, "SHADOW", None)
    assert second.group_by == ("payer", "kind")
    assert [condition.operands for condition in second.where] == [("10",), ("a", "b")]
    assert (second.window.length_ms, second.window.left) == (90_000, "open")


@pytest.mark.parametrize(("written", "read"), [("=", "="), ('"="', "="), ('"!="', "!="), ('">="', ">=")])
def test_an_operator_may_be_written_so(tmp_path, written, read):
    rules = load(tmp_path, changed('{operator: ">",', f"{{operator: {written},"))
    assert rules[0].limit.operator == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"0.1"', "0.1"),
        ("0.1", "0.1"),
        ("-5", "-5"),
        ('"1e3"', "1000"),
        ("1e3", "1000"),
        ('"9223372036854775808"', str(2**63)),
    ],
)
def test_a_limit_is_the_decimal_that_is_written(tmp_path, written, read):
    assert load(tmp_path, changed('"200000"', written))[0].limit.value == Decimal(read)


@pytest.mark.parametrize("written", ["17", "0200", "1e3", "2024-02-30", "1:30"])
def test_a_rule_id_may_look_like_a_number_or_a_date(tmp_path, written):
    assert load(tmp_path, changed("first", written))[0].rule_id == written


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    window: {length: 24h}", "    windows: 5\n    window: {length: 24h}"),
        ("{length: 24h}", "{length: 24h, hop: 5m}"),
        ("    window: {length: 24h}\n", ""),
        ("  - rule_id: second\n    version: 2", "  - version: 2"),
        ("{function: sum, measure: amount}", "{function: sum}"),
        ('"200000"', "lots"),
        ('"200000"', ".inf"),
        ('"200000"', "true"),
        ('"200000"', "[1]"),
        ('"200000"', '"1_000"'),
        ('"200000"', f'"{"9" * 39}"'),
        ("{length: 24h}", "{length: 0s}"),
        ("{length: 24h}", "{length: 24}"),
        ("{length: 24h}", "{length: -24h}"),
        ("{length: 24h}", "{length: 9999d}"),
        ("left: open", "left: ajar"),
        ("function: sum", "function: median"),
        ("state: SHADOW", "state: LOUD"),
        ("version: 2", "version: 0"),
        ("rule_id: second", "rule_id: first"),
        ("version: 2", f"version: {'9' * 20}"),
        ("rule_id: first", 'rule_id: ""'),
        ("rule_id: first", "rule_id: true"),
        ("group_by: [payer]", "group_by: [payer, payer]"),
        ("group_by: [payer]", "group_by: payer"),
        ("kind: [a, b]", "kind: {like: a}"),
        ("kind: [a, b]", "kind: []"),
        ("kind: [a, b]", "kind: {}"),
        ('{"<": 10}', '{"<": ten}'),
        ("kind: [a, b]", "kind:"),
        ('operator: ">"', "operator: >"),
        ('operator: ">"', "operator: !="),
        ('operator: ">"', "operator: =="),
        ("rule_id: first", "rule_id: first\n    rule_id: other"),
        ("rule_id: first", "rule_id: [first"),
        ("length: 24h}", "length: 24h"),
        ("[a, b]", "[a, b"),
        ("length: 24h}", "length: ${DAY}}"),
        ('"200000"', '"${MOST}"'),
        ('"200000"', "200,000"),
        ('"200000"', '"200,000"'),
        # What is not known comes first, and what it may have been meant for is not missed beside it.
        ("group_by: [payer]", "groupby: [payer]"),
        ("{length: 24h}", "{lenght: 24h}"),
        ("  - rule_id: first", "  - ruleId: first\n    colour: red"),
        ("group_by: [payer]", "colour: red"),
        ("group_by: [payer]", WHERE + "kind = 'a' && amount > 5"),
        ("group_by: [payer]", WHERE + "kind = 'a' || amount > 5"),
        ("group_by: [payer]", WHERE + "(kind = 'a'"),
        ("group_by: [payer]", WHERE + "kind = 'a')"),
        ("group_by: [payer]", WHERE + "amount > ${MOST}"),
        ("rule_id: first", "rule_id: !secret first"),
        ("rules:", "version: 1\nrules:"),
    ],
)
def test_a_fault_is_named_by_line_field_and_reason(tmp_path, old, new, as_worded):
    assert as_worded(fault(tmp_path, changed(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[payer]", "[who]"),
        ("[payer]", "[amount]"),
        ("measure: amount", "measure: total"),
        ("measure: amount", "measure: payer"),
        ("function: count", "function: count, measure: total"),
        ("kind: [a, b]", "colour: [a, b]"),
        ('{"<": 10}', '{"<": 0.001}'),
        ("kind: [a, b]", 'kind: {">": 5}'),
    ],
)
def test_what_does_not_fit_the_event_schema_is_named(tmp_path, old, new, as_worded):
    assert as_worded(fault(tmp_path, changed(old, new), SCHEMA))
    assert load(tmp_path, changed(old, new))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n",
        "# nothing yet\n",
        "- rule_id: a\n",
        "rules: {first: a}\n",
        "rule: []\n",
        "rules: []\n",
        "rules: [a]\n",
        "rules:\n\t- a\n",
        "rules: []\n---\nrules: []\n",
        b"rules: \n\xff\xfe",
        "rules:\n- \x01",
        "rules:\n  - " + "[" * 33,
        "rules:\n  - " + "[" * 30_000,
        "rules:\n  - " + "{a: " * 30_000,
        "\n".join(" " * depth + "a:" for depth in range(40)),
        LAUGHS,
        "rules: &all\n  - *all\n",
        "rules: [*none]\n",
        "rules:\n  - ? [a, b]\n    : c\n",
        "rules:\n  - !!python/object/apply:os.system [ls]\n",
        "rules:\n  - !!binary YQ==\n",
        "rules:\n  - !!bool maybe\n",
        "rules:\n  - !!map a\n",
        'rules:\n  - "\\ud800"\n',
        'rules:\n  - "\\Uffffffff"\n',
        "%YAML " + "1" * 5000 + ".1\n---\nrules: []\n",
    ],
)
def test_a_file_that_is_no_rule_file_is_named(tmp_path, text, as_worded):
    assert as_worded(fault(tmp_path, text))


def test_a_folder_and_a_missing_file_are_named(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        load_rules(tmp_path)
    with pytest.raises(BucketsError, check=as_worded):
        load_rules(tmp_path / "none.yaml")


def test_of_several_faults_the_first_is_named_and_the_others_are_counted(tmp_path, as_worded):
    assert as_worded(fault(tmp_path, changed("{length: 24h}", "{length: 5, left: ajar}")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"200000"', "{{ limit }}"),
        ('"200000"', "9" * 5000),
    ],
)
def test_broken_values_of_yaml_are_one_clear_line_too(tmp_path, old, new):
    assert fault(tmp_path, changed(old, new))


def test_a_name_that_is_too_long_is_one_clear_line_too(as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        load_rules(Path("a" * 5000))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("12345678901234567.89", "12345678901234567.89"),
        ("0200", "200"),
        ("0.12345678901234567891", "0.12345678901234567891"),
    ],
)
def test_a_plain_number_is_the_decimal_that_is_written(tmp_path, written, read):
    assert load(tmp_path, changed('"200000"', written))[0].limit.value == Decimal(read)


@pytest.mark.parametrize("limit", ["12345678901234567890", "9" * 38, "1234567890123456789.00"])
def test_a_limit_of_up_to_38_digits_is_taken(tmp_path, limit):
    assert load(tmp_path, changed('"200000"', f'"{limit}"'))[0].limit.value == Decimal(limit)


# YAML 1.2


@pytest.mark.parametrize(
    "word", ["NO", "no", "yes", "ON", "Off", "y", "1:30", "0o17", "0x1F", "010", "2024-02-30", "=", "1e3"]
)
def test_what_yaml_1_1_reads_otherwise_is_the_text_that_is_written(tmp_path, word):
    (rule, _) = load(tmp_path, changed("[payer]", f"[payer]\n    where: {{kind: {word}}}"))
    assert rule.where[0].operands == (word,)
    (_, rule) = load(tmp_path, changed("kind: [a, b]", f"kind: [{word}, SE]"))
    assert set(rule.where[1].operands) == {word, "SE"}


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "false", "False", "FALSE"])
def test_true_and_false_are_booleans(tmp_path, word):
    (rule, _) = load(tmp_path, changed("[payer]", f"[payer]\n    where: {{vip: {word}}}"), SCHEMA)
    assert rule.where[0].operands == (word.lower(),)


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "Y", "NO"])
def test_a_word_that_was_a_boolean_in_yaml_1_1_is_refused_for_a_boolean_field(tmp_path, word, as_worded):
    text = changed("[payer]", f"[payer]\n    where:\n      vip: {word}")
    assert as_worded(fault(tmp_path, text, SCHEMA))


def test_a_key_is_the_text_that_is_written(tmp_path):
    (rule, _) = load(tmp_path, changed("[payer]", "[payer]\n    where: {no: a, true: b, 010: c, ~: d}"))
    assert [condition.field for condition in rule.where] == ["010", "no", "true", "~"]


def test_rules_may_share_parts(tmp_path):
    text = changed("  - rule_id: first\n", "  - &first\n    rule_id: first\n").replace(
        "  - rule_id: second\n    version: 2\n", "  - <<: *first\n    rule_id: second\n    version: 2\n"
    )
    assert [rule.rule_id for rule in load(tmp_path, text, SCHEMA)] == ["first", "second"]


# Names


@pytest.mark.parametrize(
    "rule_id",
    [
        "!state x",
        "!",
        " ",
        " a",
        "a\\u00a0",
        "a\\n",
        "a\\nb",
        "\\u3164",
        "a\\u2800",
        "a\\0b",
        "a\\eb",
        "a\\u202eb",
        "a\\u2028b",
    ],
)
def test_a_rule_that_may_not_be_called_so_is_refused(tmp_path, rule_id, as_worded):
    said = fault(tmp_path, changed("rule_id: first", f'rule_id: "{rule_id}"'))
    assert as_worded(said)


@pytest.mark.parametrize("rule_id", ["a b", "é-1", "支付", "#1", "a!b", "a/b:c", "-"])
def test_a_rule_may_be_called_so(tmp_path, rule_id):
    assert load(tmp_path, changed("rule_id: first", f'rule_id: "{rule_id}"'))[0].rule_id == rule_id


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[payer]", '["pay\\eer"]'),
        ("kind: [a, b]", '"ki\\nnd": [a, b]'),
        ("Many small ones", '"\\e[2J all is well"'),
        ("[payer]", "[payer]\n    where: \"kind = 'a\\u202eb'\""),
        ("[payer]", '[payer]\n    where: "length(kind) > 1 /* \\0 */"'),
        ("kind: [a, b]", 'kind: ["a\\u2067"]'),
    ],
)
def test_what_a_terminal_would_obey_is_refused(tmp_path, old, new, as_worded):
    assert as_worded(fault(tmp_path, changed(old, new)))


def test_a_description_may_have_several_lines(tmp_path):
    assert load(tmp_path, changed("Many small ones", '"one\\n\\ttwo"'))[1].description == "one\n\ttwo"


# Files that are none


def test_what_is_no_file_is_named_and_not_waited_for(tmp_path, as_worded):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "lost.yaml").symlink_to(tmp_path / "gone")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket.yaml"))
    for path in [*sorted(tmp_path.iterdir()), Path("/dev/zero"), tmp_path / "loop.yaml" / "a.yaml", Path("a\0b")]:
        with pytest.raises(BucketsError, check=as_worded):
            load_rules(path)


def test_a_file_that_is_too_large_is_named(tmp_path, monkeypatch, as_worded):
    monkeypatch.setattr("buckets.yaml_file.LARGEST_BYTES", len(GOOD))
    assert load(tmp_path, GOOD)
    assert as_worded(fault(tmp_path, GOOD + "#"))


# Any bytes

PIECES = st.sampled_from(
    ["[", "]", "{", "}", ": ", "- ", "? ", "\n", "\n  ", "\t", "&a ", "*a", "<<: ", "!!str ", "!x ", "|\n", ">-\n",
     "'", '"', "#", "---\n", "...\n", "%TAG ! x\n", "\\", "\0", "\x85", "\u2028", "\ufeff", "9" * 5000, "=", "~", "NO",
     "rules:", "rule_id: ", "where: ", "\\ud800", "\\x41", "[" * 200],
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("9" * 5000)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def spoilt(insertions: list[tuple[int, str]]) -> bytes:
    """The good file with pieces inserted at indexes."""
    text = GOOD
    for index, piece in insertions:
        at = index % (len(text) + 1)
        text = text[:at] + piece + text[at:]
    return text.encode("utf-8", "surrogatepass")


def with_values(values: dict[str, object]) -> bytes:
    return yaml.safe_dump({"rules": [written_rule(**values)]}, allow_unicode=True).encode("utf-8", "surrogatepass")


FIELDS = st.sampled_from(
    ["rule_id", "version", "state", "description", "group_by", "where", "aggregate", "window", "limit"]
)
FILES = st.one_of(
    st.binary(max_size=60),
    st.lists(PIECES, max_size=12).map(lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")),
    st.lists(st.tuples(st.integers(0, 10_000), PIECES), min_size=1, max_size=4).map(spoilt),
    st.dictionaries(st.one_of(FIELDS, FIELDS, st.text(max_size=3)), VALUES, min_size=1, max_size=2).map(with_values),
)
WHOLE = ("is empty", "must be a mapping with a list `rules`", "holds no rule; add at least one under `rules`")


@settings(max_examples=examples(400))
@given(FILES)
@example(b"rules:\n  - {}\n? " + b"9" * 5_000)
@example(with_values({"group_by": ["9" * 5_000]}))
@example(with_values({"aggregate": {"function": "sum", "measure": "9" * 5_000}}))
@example(with_values({"where": {"9" * 5_000: 1}}))
@example(with_values({"where": "`" + "9" * 5_000 + "` = 1"}))
@example(with_values({"where": "lower('" + "9" * 5_000 + "') = 1"}))
def test_any_bytes_are_rules_or_refused_in_one_line_that_names_the_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    for schema in (None, SCHEMA):
        try:
            rules = load_rules(path, schema)
        except BucketsError as error:
            said = error.message
            assert said.isprintable() or not set(said) & set("\n\r\x1b\x85\u2028")
            assert len(said) < 800 + len(str(path))
            location, _, reason = said.removeprefix(f"rule file {path}").partition(": ")
            assert re.fullmatch(r":\d+", location) or reason in WHOLE
        else:
            for rule in rules:
                assert Rule.model_validate_json(rule.model_dump_json(by_alias=True)) == rule


def test_a_filter_keeps_every_character_in_a_file(tmp_path):
    odd = "\u00a0é\\ #\U0001f600 "
    written = [Rule.model_validate(written_rule(where=where)) for where in ({"kind": odd}, f"kind = '{odd}'")]
    for each in written:
        (tmp_path / "rules.yaml").write_text(rules_text([each]), encoding="utf-8")
        assert load_rules(tmp_path / "rules.yaml") == (each,)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_of_two_byte_letters_says_so(tmp_path, encoding, as_worded):
    path = tmp_path / "rules.yaml"
    path.write_bytes(GOOD.encode(encoding))
    with pytest.raises(BucketsError, check=as_worded):
        load_rules(path)
