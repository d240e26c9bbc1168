"""Every command that reads a file of events counts the rows that are none in the same words, and refuses too many."""

import pytest

SCHEMA = "event_id: id\nevent_time: t\nattributes: {payer: string}\nmeasures: {amount: {scale: 2}}\n"
RULES = """rules:
  - rule_id: r
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 1h}
    limit: {operator: ">", value: 1}
"""
GOOD = b'{"id": "%d", "t": 1700000000000, "payer": "p", "amount": "2"}'
BAD = [b'{"id": "x", "t": 1700000000000, "payer": "p", "amount": "a"}', b"\xff\xfe", b"\xfe", b"\xfd"]
REASONS = (
    '4 of {} rows are not events: 3 of "is not valid UTF-8", first at day.jsonl:2; '
    "1 of \"amount: 'a' is not a decimal number\", first at day.jsonl:1"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "rules.yaml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = [
    ("backtest", "rules.yaml"),
    ("features", "rules.yaml", "--out", "out.parquet"),
    ("rules", "check", "rules.yaml"),
]
OF_EVENTS = ("--schema", "schema.yaml", "--events", "day.jsonl")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
def test_the_reasons_are_told_in_the_same_words(buckets, folder, command):
    (folder / "day.jsonl").write_bytes(b"\n".join(BAD + [GOOD % number for number in range(4)]))
    ran = buckets(*command, *OF_EVENTS)
    assert ran.code == 0, ran.err
    assert REASONS.format(8) in " ".join(f"{ran.out}{ran.err}".split())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
@pytest.mark.parametrize("good", [0, 3])
def test_a_file_of_which_less_than_half_is_read_is_an_error(buckets, folder, command, good):
    (folder / "day.jsonl").write_bytes(b"\n".join(BAD + [GOOD % number for number in range(good)]))
    ran = buckets(*command, *OF_EVENTS)
    assert ran.code == 1
    assert REASONS.format(4 + good) in ran.err
    assert not (folder / "out.parquet").exists()
