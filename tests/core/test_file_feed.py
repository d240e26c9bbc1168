"""Rules in files: watched while a job runs, written, and changed in place with all comments kept."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.feeds.feed import SETTLED_S, RuleRead
from buckets.feeds.rules.rule_book import RuleFiles
from buckets.printable import blank_letter, unseen_character
from buckets.rule_files.flink_rules import ChangeNote, change_notes_path, read_change_notes, write_change_notes
from buckets.rule_files.yaml_editor import RuleText, change_files, rules_text
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.change import RuleChange
from buckets.rules.rule import Rule
from tests.core.examples import SCHEMA, rule
from tests.laws import examples

LONG_S = SETTLED_S + 0.01
ONE, TWO = rule("one"), rule("two", "fee", group_by=["kind"])


def asked(changes: list[RuleChange]) -> list[tuple[str, str | None]]:
    return [(change.change, change.subject) for change in changes]


# Watched


class Clock:
    """Both clocks of the module, which go only when told to."""

    def __init__(self) -> None:
        self.now_s = time.time()

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("buckets.feeds.feed.time", clock)
    return clock


@pytest.fixture
def write(clock, tmp_path) -> Callable[..., Path]:
    """Writes a file at the time of the clock."""

    def write(text: str, name: str = "rules.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(int(clock.now_s * 1e9),) * 2)
        return path

    return write


@pytest.fixture
def feed(write, tmp_path) -> RuleFiles:
    """A feed of a file with one rule, which the first batch has taken."""
    feed = RuleFiles(write(rules_text([ONE])), SCHEMA)
    feed.start(None)
    assert asked(feed.read([]).asked) == [("put", "one")]
    return feed


def test_the_first_batch_takes_what_was_there_at_the_start_however_young_it_is(write):
    feed = RuleFiles(write(rules_text([ONE])), SCHEMA)
    feed.start(None)
    write("rules:\n  - rule_id: o")
    assert asked(feed.read([]).asked) == [("put", "one")]


def test_a_change_is_taken_once_and_says_where_it_comes_from(feed, write, clock):
    path = write(rules_text([ONE, TWO]))
    clock.now_s += LONG_S
    found = feed.read([ONE])
    assert asked(found.asked) == [("put", "two")]
    (change,) = found.asked
    assert (change.origin, change.reason) == (str(path), "rules.yaml was changed")
    assert change.author == path.owner()
    assert change.time == path.stat().st_mtime_ns // 1_000_000
    assert feed.read([ONE, TWO]).asked == []


def notes_of_changes(feed: RuleFiles, in_force: list[Rule], clock) -> dict[str | None, tuple[str, str]]:
    clock.now_s += LONG_S
    return {change.subject: (change.author, change.reason) for change in feed.read(in_force).asked}


def test_a_change_by_a_command_says_by_whom_and_why_until_the_file_is_changed_by_hand(feed, write, clock):
    path = write(rules_text([ONE, TWO]))
    assert notes_of_changes(feed, [ONE], clock) == {"two": (path.owner(), "rules.yaml was changed")}
    change_files(path, {"one": "PAUSE"}, [], "", {"one": ChangeNote("ann", "too many")})
    change_files(path, {"two": "DELETE"}, [], "", {"two": ChangeNote("bob", "nobody needs it")})
    expected = {"one": ("ann", "too many"), "two": ("bob", "nobody needs it")}
    assert notes_of_changes(feed, [ONE, TWO], clock) == expected
    write(rules_text([ONE]))
    paused = ONE.model_copy(update={"state": "PAUSE"})
    assert notes_of_changes(feed, [paused], clock) == {"one": (path.owner(), "rules.yaml was changed")}


@pytest.mark.parametrize(
    "written", ["{", "[]", '{"sha256": 1}', "null", "[" * 100_000, 'KEPT "ann" 5', 'KEPT "ann" null', 'KEPT "ann" [[]]']
)
def test_notes_that_somebody_else_wrote_count_as_none(write, written):
    path = write(rules_text([ONE]))
    write_change_notes(path, path.read_text(), {"one": ChangeNote("ann", "")})
    assert read_change_notes([path]) == {"one": ChangeNote("ann", "")}
    kept = change_notes_path(path).read_text()
    if written.startswith("KEPT"):
        _, old, new = written.split(" ")
        assert old in kept
        written = kept.replace(old, new)
    change_notes_path(path).write_text(written)
    assert read_change_notes([path]) == {}


def test_a_file_that_is_being_written_is_not_taken(feed, write, clock):
    """The half that is there would be valid, and would delete a rule."""
    write(rules_text([TWO]))
    for _ in range(5):
        clock.now_s += SETTLED_S / 2
        assert feed.read([ONE]).asked == []
        write(rules_text([TWO]) + f"# {clock.now_s}\n")
    write(rules_text([TWO, ONE]))
    clock.now_s += LONG_S
    assert asked(feed.read([ONE]).asked) == [("put", "two")]


def test_a_file_that_was_moved_there_with_an_old_time_is_taken(feed, write, clock):
    path = write(rules_text([TWO]))
    os.utime(path, (1, 1))
    assert asked(feed.read([ONE]).asked) == [("delete", "one"), ("put", "two")]


def test_a_file_with_a_time_to_come_is_taken_when_it_has_settled(feed, write, clock):
    path = write(rules_text([ONE, TWO]))
    os.utime(path, (clock.now_s + 9999, clock.now_s + 9999))
    assert feed.read([ONE]).asked == []
    clock.now_s += LONG_S
    assert asked(feed.read([ONE]).asked) == [("put", "two")]


def test_a_broken_file_changes_nothing_and_is_said_once_until_it_is_mended(feed, write, clock, as_worded):
    path = write(rules_text([ONE, TWO]).replace("1h", "soon"))
    clock.now_s += LONG_S
    (refusal,) = feed.read([ONE]).refused
    assert refusal.origin == str(path)
    assert as_worded(refusal.reason)
    for _ in range(3):
        clock.now_s += LONG_S
        assert feed.read([ONE]) == feed.read([ONE])
        assert feed.read([ONE]).refused == []
    write(rules_text([ONE, TWO]))
    clock.now_s += LONG_S
    found = feed.read([ONE])
    assert (asked(found.asked), found.refused) == ([("put", "two")], [])


def test_a_file_that_goes_and_comes_again_changes_nothing(feed, write, clock, tmp_path, as_worded):
    (tmp_path / "rules.yaml").unlink()
    assert feed.read([ONE]).refused == []
    clock.now_s += LONG_S
    assert as_worded(feed.read([ONE]).refused[0].reason)
    write(rules_text([ONE]))
    clock.now_s += LONG_S
    assert feed.read([ONE]).asked == []


def test_a_job_does_not_start_with_a_broken_file(write, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        RuleFiles(write("rules: []"), SCHEMA).start(None)


@contextlib.contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """Nobody may read a file or folder, not even who runs the tests."""
    mode, user = path.stat().st_mode, os.geteuid()
    path.chmod(0)
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)
        path.chmod(mode)


@pytest.mark.parametrize("hidden", ["rules", "rules/a.yaml"])
def test_a_folder_that_cannot_be_read_for_a_while_changes_nothing_and_is_said(
    write, clock, tmp_path, hidden, as_worded
):
    write(rules_text([ONE]), "rules/a.yaml")
    tmp_path.chmod(0o755)
    feed = RuleFiles(tmp_path / "rules", SCHEMA)
    feed.start(None)
    feed.read([])
    with without_rights(tmp_path / hidden):
        refused = []
        for _ in range(3):
            clock.now_s += LONG_S
            found = feed.read([ONE])
            assert found.asked == []
            refused += found.refused
        (refusal,) = refused
        assert as_worded(refusal.reason)
        with pytest.raises(BucketsError, check=as_worded):
            RuleFiles(tmp_path / "rules", SCHEMA).start(None)
    for _ in range(2):
        clock.now_s += LONG_S
        assert feed.read([ONE]) == RuleRead()
    write(rules_text([ONE, TWO]), "rules/a.yaml")
    clock.now_s += LONG_S
    assert asked(feed.read([ONE]).asked) == [("put", "two")]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("rules:\n  - " + "[" * 100_000),
        lambda path: path.write_bytes(b"rules:\n  - \xff"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path.with_name("gone")),
        os.mkfifo,
    ],
    ids=["nested", "not UTF-8", "folder", "link", "pipe"],
)
def test_what_comes_into_a_folder_and_is_no_rule_file_is_refused_and_the_job_lives(
    write, clock, tmp_path, make, as_worded
):
    write(rules_text([ONE]), "rules/a.yaml")
    feed = RuleFiles(tmp_path / "rules", SCHEMA)
    feed.start(None)
    feed.read([])
    make(tmp_path / "rules" / "b.yaml")
    refused = []
    for _ in range(3):
        clock.now_s += LONG_S
        found = feed.read([ONE])
        assert found.asked == []
        refused += found.refused
    (refusal,) = refused
    assert as_worded(refusal.reason)


def test_a_file_that_goes_while_it_is_read_is_looked_at_again(feed, write, clock, monkeypatch):
    """A program that replaces a file takes it away first."""
    path = write(rules_text([ONE, TWO]))
    clock.now_s += LONG_S

    def lost(*_: object) -> None:
        path.unlink()
        message = "no such file"
        raise BucketsError(message)

    with monkeypatch.context() as patched:
        patched.setattr("buckets.feeds.rules.rule_book.load_rule_files", lost)
        assert feed.read([ONE]) == RuleRead()
    write(rules_text([ONE, TWO]))
    clock.now_s += LONG_S
    assert asked(feed.read([ONE]).asked) == [("put", "two")]


def test_all_files_of_a_folder_count(write, clock, tmp_path):
    write(rules_text([ONE]), "rules/a.yaml")
    write("not yaml: [", "rules/readme.txt")
    feed = RuleFiles(tmp_path / "rules", SCHEMA)
    feed.start(None)
    assert asked(feed.read([]).asked) == [("put", "one")]
    write(rules_text([TWO]), "rules/b.yml")
    clock.now_s += LONG_S
    assert asked(feed.read([ONE]).asked) == [("put", "two")]
    (tmp_path / "rules" / "a.yaml").unlink()
    assert feed.read([ONE, TWO]).asked == []
    clock.now_s += LONG_S
    assert asked(feed.read([ONE, TWO]).asked) == [("delete", "one")]


def test_a_rule_in_two_files_of_a_folder_changes_nothing(write, clock, tmp_path, as_worded):
    write(rules_text([ONE]), "rules/a.yaml")
    feed = RuleFiles(tmp_path / "rules", SCHEMA)
    feed.start(None)
    feed.read([])
    write(rules_text([TWO, ONE]), "rules/b.yaml")
    clock.now_s += LONG_S
    found = feed.read([ONE])
    assert found.asked == []
    assert as_worded(found.refused[0].reason)


# Written


rules = st.builds(
    rule,
    st.text(min_size=1, max_size=20).filter(
        lambda text: text.isprintable() and text.strip() == text and text[0] != "!" and not blank_letter(text)
    ),
    measure=st.sampled_from(["amount", None]),
    length=st.sampled_from(["1ms", "90s", "24h", "30d"]),
    group_by=st.sampled_from([[], ["payer"], ["payer", "kind"]]),
    where=st.sampled_from(
        [
            {},
            {"kind": "yes"},
            {"kind": ["NO", "0o17", "1e3", "+.5", "~", "null", "1:30", "2024-01-01", "=", "<<", "*a", "true"]},
            {"kind": ["a", "0x1F"], "amount": {">": "1", "<=": "0200"}},
            {"vip": True},
        ]
    ),
    limit=st.sampled_from([{"operator": "=", "value": "0.10"}, {"operator": "!=", "value": "-5"}]),
    state=st.sampled_from(["ACTIVE", "SHADOW", "PAUSE"]),
    description=st.one_of(
        st.sampled_from(["", "é: [x] # no comment", "two\nlines", "- 'quoted' \"twice\"", "1e3", "NO", "\t \n"]),
        st.text(max_size=20).filter(lambda text: unseen_character(text, "\n\t") is None),
    ),
    version=st.integers(1, 3),
)  # fmt: skip


@given(st.lists(rules, min_size=1, max_size=4, unique_by=lambda each: each.rule_id))
def test_rules_that_are_written_are_read_back(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(rules_text(written), encoding="utf-8")
    assert load_rules(path) == tuple(written)


@pytest.mark.parametrize(
    "text", ["NO", "on", "~", "1e3", "0o17", "0x1F", "1_000", "1:30", "2024-02-30", "2024-02-03", ".5", "=", "<<"]
)
def test_a_text_that_some_yaml_takes_for_something_else_is_quoted(text):
    written = rules_text([rule(where={"kind": text})])
    assert f"kind: '{text}'" in written


def test_a_rule_is_written_as_people_write_it():
    short = "group_by: [payer]\n    aggregate: {function: count}\n    window: {length: 1h}\n"
    for version, where in ((1, None), (1, {})):
        assert short in rules_text([rule(measure=None, version=version, where=where)])
    assert rules_text([rule(where={"kind": ["x", "y"], "amount": {">": "5"}}, state="PAUSE")]) == (
        "rules:\n"
        "  - rule_id: r\n"
        "    state: PAUSE\n"
        "    group_by: [payer]\n"
        "    where:\n"
        "      amount: {'>': '5'}\n"
        "      kind: [x, y]\n"
        "    aggregate: {function: sum, measure: amount}\n"
        "    window: {length: 1h}\n"
        "    limit: {operator: '>', value: '100'}\n"
    )


# Changed in place

KEPT = """\
# Rules of the night shift.
rules:
  # The first one
  - rule_id: one   # agreed with ann
    group_by:
      - payer
    aggregate: {function: sum,
                measure: amount}
    window: {length: 1h}
    limit: {operator: ">", value: 100}  # see the minutes

  # The second one
  - state: SHADOW  # on trial
    rule_id: "two"
    description: >
      folded
      text
    group_by: [kind]
    aggregate: {function: sum, measure: fee}
    window: {length: 1h}
    limit:
      operator: ">"
      value: "100"
# The end.
"""
FLOW = (
    "rules: [{rule_id: one, group_by: [payer], aggregate: {function: sum, measure: amount}, window: {length: 1h}, "
    'limit: {operator: ">", value: 100}}]  # all\n'
)


def edited(text: str, edit: Callable[[RuleText], None]) -> str:
    changing = RuleText(text)
    edit(changing)
    return changing.text


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (lambda text: text.set_state("one", "PAUSE"), "ann\n", "ann\n    state: PAUSE\n"),
        (lambda text: text.set_state("two", "ACTIVE"), "state: SHADOW  #", "state: ACTIVE  #"),
        (lambda text: text.delete("one"), KEPT[KEPT.index("  - rule_id: one") : KEPT.index("\n  # The second")], ""),
        (lambda text: text.delete("two"), KEPT[KEPT.index("  - state") : KEPT.index("# The end")], ""),
        (
            lambda text: text.put(rule("three")),
            '      value: "100"\n',
            '      value: "100"\n' + rules_text([rule("three")]).removeprefix("rules:\n"),
        ),
        (
            lambda text: text.put(rule("one", length="2h")),
            KEPT[KEPT.index("rule_id: one") : KEPT.index("  # see")],
            rules_text([rule("one", length="2h")]).removeprefix("rules:\n  - ").rstrip(),
        ),
    ],
    ids=["a state comes", "a state changes", "the first goes", "the last goes", "one comes", "one changes"],
)
def test_only_the_lines_of_the_rule_change(edit, old, new):
    assert KEPT.count(old) == 1
    assert edited(KEPT, edit) == KEPT.replace(old, new)


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (lambda text: text.set_state("one", "PAUSE"), {"one": "PAUSE"}),
        (lambda text: text.delete("one"), {"one": "DELETE"}),
        (lambda text: text.put(rule("two")), {"one": "ACTIVE", "two": "ACTIVE"}),
        (lambda text: text.put(rule("one", state="SHADOW")), {"one": "SHADOW"}),
    ],
    ids=["state", "delete", "new", "changed"],
)
def test_a_file_in_braces_stays_one(edit, left):
    text = edited(FLOW, edit)
    assert {each["rule_id"]: each.get("state", "ACTIVE") for each in yaml.safe_load(text)["rules"]} == left
    assert text.endswith("]  # all\n")
    assert text.count("\n") == 1


def test_the_only_rule_of_a_file_is_marked_as_deleted(tmp_path):
    """A file without rules would be broken."""
    path = tmp_path / "rules.yaml"
    path.write_text("# mine\n" + rules_text([ONE]))
    change_files(path, {"one": "DELETE"}, [], "", {})
    assert path.read_text() == "# mine\n" + rules_text([ONE]).replace("one\n", "one\n    state: DELETE\n")
    change_files(path, {}, [ONE], "", {})
    assert load_rules(path) == (ONE,)


IDS = ("one", "two", "three")
STYLES = (
    KEPT,
    FLOW,
    KEPT.replace("\n", "\r\n"),
    KEPT.replace("\n  ", "\n"),
    KEPT.rstrip("\n").removesuffix("# The end."),
)


@settings(max_examples=examples(25))
@given(
    st.sampled_from(STYLES),
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(IDS), st.sampled_from(["ACTIVE", "PAUSE", "SHADOW", "DELETE"])),
            st.builds(rule, st.sampled_from(IDS), length=st.sampled_from(["2h", "3h"])),
        ),
        max_size=8,
    ),
)  # fmt: skip
def test_any_changes_leave_the_rules_that_a_dictionary_would_have(tmp_path_factory, text, changes):
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_bytes(text.encode())
    comments = set(re.findall(r"# The .*", text))
    left = {each.rule_id: each for each in load_rules(path)}
    for change in changes:
        if isinstance(change, Rule):
            change_files(path, {}, [change], "", {})
            left[change.rule_id] = change
        elif left.get(change[0], ONE.model_copy(update={"state": "DELETE"})).state != "DELETE":
            change_files(path, {change[0]: change[1]}, [], "", {})
            left[change[0]] = left[change[0]].model_copy(update={"state": change[1]})
        live = {each.rule_id: each for each in load_rules(path) if each.state != "DELETE"}
        assert live == {rule_id: each for rule_id, each in left.items() if each.state != "DELETE"}
    assert comments <= set(re.findall(r"# The .*", path.read_bytes().decode()))


def test_what_would_not_be_right_afterwards_is_refused_and_nothing_is_written(tmp_path, as_worded):
    path = tmp_path / "rules.yaml"
    text = rules_text([ONE, TWO]).replace("[payer]", "&fields [payer]", 1).replace("[kind]", "*fields", 1)
    path.write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        change_files(path, {"one": "DELETE"}, [], "", {})
    assert path.read_text() == text


def test_a_rule_of_a_folder_changes_in_its_file_and_new_ones_have_one_of_their_own(tmp_path):
    (tmp_path / "a.yaml").write_text(rules_text([ONE]))
    (tmp_path / "b.yaml").write_text(rules_text([TWO]))
    new = [rule("one", length="5h"), rule("three")]
    written = change_files(tmp_path, {"two": "PAUSE"}, new, "c.yaml", {})
    assert [path.name for path in written] == ["a.yaml", "b.yaml", "c.yaml"]
    assert load_rules(tmp_path / "a.yaml") == (new[0],)
    assert load_rules(tmp_path / "b.yaml")[0].state == "PAUSE"
    assert load_rules(tmp_path / "c.yaml") == (new[1],)


def test_a_file_keeps_its_mode_and_a_link_leads_where_it_led(tmp_path):
    path, link = tmp_path / "rules.yaml", tmp_path / "link.yaml"
    path.write_text(rules_text([ONE]))
    path.chmod(0o640)
    link.symlink_to(path)
    change_files(link, {"one": "PAUSE"}, [], "", {})
    assert link.is_symlink()
    assert load_rules(path)[0].state == "PAUSE"
    assert path.stat().st_mode & 0o777 == 0o640
