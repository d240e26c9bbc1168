"""The commands about verdicts, with alerts and verdicts in real Delta tables."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import buckets as package
from buckets.config.job import load_job
from buckets.exit_codes import MISUSED
from buckets.verdicts.confirmed import confirmed_fraud
from tests.cli_unit.ran import Ran, one_line
from tests.cli_unit.verdict_job import HOUR_MS, START_MS, VerdictJob, alert, filled

COMMANDS = (["verdict"], ["verdicts"], ["rules", "quality"])
Say = Callable[..., str]


@pytest.fixture
def job(tmp_path) -> VerdictJob:
    return filled(tmp_path / "job")


def told(ran: Ran) -> str:
    assert ran.code == 0, ran.err
    assert ran.err == ""
    return ran.out


@pytest.fixture
def say(buckets, job) -> Say:
    """Gives a verdict, which is expected to work."""
    return lambda *words: told(buckets("verdict", *words, "--by", "ann", "--conf", job.conf))


def kept(job: VerdictJob) -> list[dict[str, Any]]:
    return package.read_verdicts(job.verdicts)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_has_examples_that_begin_with_the_command(buckets, command):
    examples = told(buckets(*command, "--help")).partition("Examples:\n")[2]
    assert examples.strip().startswith(f"buckets {' '.join(command)}")


# verdict


def test_a_verdict_has_a_copy_of_the_rule_the_event_and_the_key_of_its_alert(say, job):
    assert say("a2", "fraud", "--note", "called\nthe payer") == "alert a2 of large, event e2: fraud, by ann\n"
    (row,) = kept(job)
    assert row["made_at"] > START_MS
    del row["id"], row["made_at"]
    assert row == {
        "alert_id": "a2",
        "event_id": "e2",
        "verdict": "fraud",
        "by": "ann",
        "note": "called\nthe payer",
        "rule_id": "large",
        "event_time": START_MS + 2 * HOUR_MS,
        "key": {"payer": "p1"},
        "amount": None,
    }


def test_alerts_on_trial_and_held_ones_may_have_verdicts_too(say, job):
    say("s4", "legitimate")
    say("h5", "unclear")
    assert [(row["rule_id"], row["event_id"]) for row in kept(job)] == [("trial", "e4"), ("large", "e5")]


def test_an_event_without_an_alert_has_what_is_said_of_it(buckets, say, job):
    words = ["--event", "e9", "--at", "2026-01-01T06:00Z", "--key", "payer=p1,vip=true", "--amount", "12.50"]
    assert say("fraud", *words) == "event e9: fraud, by ann\n"
    (row,) = kept(job)
    assert (row["alert_id"], row["event_id"], row["event_time"]) == (None, "e9", START_MS + 6 * HOUR_MS)
    assert (row["key"], row["amount"]) == ({"payer": "p1", "vip": True}, Decimal("12.5"))
    say("fraud", "--event", "e3")
    assert kept(job)[-1]["event_time"] == START_MS + 3 * HOUR_MS


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nope", "fraud"], 1),
        (["a1", "Fraud"], 2),
        (["a1"], 2),
        ([], 2),
        (["a1", "fraud", "more"], 2),
        (["", "fraud"], 2),
        (["fraud", "--event", ""], 2),
        (["a1", "fraud", "--event", "e1"], 2),
        (["a1", "fraud", "--at", "2026-01-01"], 2),
        (["a1", "fraud", "--from-file", "cases.csv"], 2),
        (["a1", "fraud", "--by", " "], 1),
        (["a1", "fraud", "--by", "x" * 201], 1),
        (["a1", "fraud", "--note", "x" * 100_000], 1),
        (["a1", "fraud", "--note", "\udcff"], 1),
        (["fraud", "--event", "e1", "--at", "yesterday"], 1),
        (["fraud", "--event", "e1", "--key", "p1"], 1),
        (["fraud", "--event", "e1", "--amount", "much"], 1),
        (["fraud", "--event", "e1", "--amount", "1" * 25], 1),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else None,
)
def test_what_is_no_verdict_is_one_line_and_writes_nothing(buckets, job, words, code, as_worded):
    assert as_worded(one_line(buckets("verdict", *words, "--conf", job.conf), code))
    assert not job.verdicts.exists()


def test_an_alert_that_is_elsewhere_is_taken_unchecked(say, job):
    assert say("nope", "fraud", "--unchecked") == "alert nope: fraud, by ann\n"
    (row,) = kept(job)
    assert (row["alert_id"], row["event_id"], row["rule_id"], row["key"]) == ("nope", None, None, None)


def test_verdicts_are_where_the_configuration_says(buckets, tmp_path):
    job = filled(tmp_path / "job", verdicts={"table": "../found"})
    told(buckets("verdict", "a1", "fraud", "--conf", job.conf))
    assert [row["alert_id"] for row in package.read_verdicts(tmp_path / "found")] == ["a1"]
    assert not job.verdicts.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"table": "t", "topic": "v"},
        {"topic": "v"},
        {"table": "source/t"},
        {"path": "t"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(buckets, tmp_path, settings, as_worded):
    job = filled(tmp_path / "job", verdicts=settings)
    assert as_worded(one_line(buckets("verdict", "a1", "fraud", "--conf", job.conf), MISUSED))


def test_a_table_that_is_none_of_verdicts_stays_as_it_is(buckets, job, as_worded):
    write_deltalake(job.verdicts, pa.table({"rule_id": ["large"]}))
    for command in (["verdict", "a1", "fraud", "--conf"], ["verdicts"], ["rules", "quality"]):
        assert as_worded(one_line(buckets(*command, job.conf), 1))
    assert DeltaTable(job.verdicts).version() == 0


# files of verdicts

CASES = '''\
alert_id,event_id,verdict,by,note,made_at,amount
a1,,fraud,ann,"two
lines",2026-02-01T10:00Z,
a2,,legitimate,,,1769940000000,
,e9,fraud,bob,"said ""no""",2026-02-02,12.50
'''


def take(buckets, job: VerdictJob, text: str | bytes, name: str = "cases.csv", *options: str) -> Ran:
    file = job.root / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return buckets("verdict", "--from-file", file, "--by", "cho", "--conf", job.conf, *options)


@pytest.mark.parametrize("text", [CASES, CASES.replace("\n", "\r\n"), "\ufeff" + CASES], ids=["lf", "crlf", "bom"])
def test_a_file_is_taken_whole_and_taken_again_changes_nothing(buckets, job, text):
    assert told(take(buckets, job, text)) == f"3 verdicts of {job.root / 'cases.csv'} in table {job.verdicts}\n"
    rows = kept(job)
    assert [(row["alert_id"], row["event_id"], row["verdict"], row["by"], row["note"]) for row in rows] == [
        ("a1", "e1", "fraud", "ann", "two\nlines"),
        ("a2", "e2", "legitimate", "cho", None),
        (None, "e9", "fraud", "bob", 'said "no"'),
    ]
    assert rows[1]["made_at"] == 1769940000000
    again = f"0 verdicts of {job.root / 'cases.csv'} in table {job.verdicts}; 3 were there already"
    assert told(take(buckets, job, text)) == f"{again}, or twice in the file\n"
    assert DeltaTable(job.verdicts).version() == 1


def test_lines_of_json_say_the_same_as_those_of_csv(buckets, job):
    lines = [
        {"alert_id": "a1", "verdict": "fraud", "by": "ann", "note": "two\nlines", "made_at": "2026-02-01T10:00Z"},
        {"event_id": "e9", "verdict": "fraud", "key": {"payer": "p1"}, "event_time": START_MS, "amount": 12.5},
    ]
    told(take(buckets, job, "\n\n".join(map(json.dumps, [*lines, lines[0]])), "cases.jsonl"))
    of_alert, of_event = kept(job)
    assert (of_alert["rule_id"], of_alert["note"], of_alert["by"]) == ("large", "two\nlines", "ann")
    assert (of_event["key"], of_event["event_time"], of_event["amount"]) == ({"payer": "p1"}, START_MS, Decimal("12.5"))


BAD_CSV = """\
alert_id,event_id,verdict,made_at,key
a1,,fraud,,
a1,,fraud,,
nope,,fraud,,
a1,,perhaps,,
a2,e1,fraud,,
,,fraud,,
a1,,fraud
a2,,unclear,2999-01-01,
a3,,unclear,soon,
,e1,fraud,,p1
a1,,legitimate,,
a3,,fraud,1769940000,
"""
BAD_LINES = range(4, 14)


def test_every_bad_line_is_named_and_nothing_of_the_file_is_written(buckets, job, as_worded):
    ran = take(buckets, job, BAD_CSV)
    *lines, _ = ran.err.splitlines()
    assert (ran.code, ran.out) == (1, "")
    for line, number in zip(lines, BAD_LINES, strict=True):
        assert line.startswith(f"{job.root / 'cases.csv'}:{number}: ")
    assert as_worded(ran.err)
    assert not job.verdicts.exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('alert_id,verdict,note\na1,fraud,"half of a no', "cases.csv"),
        ("alert_id,verdict,note\na1,fraud,n\na2,fra", "cases.csv"),
        ("alert_id,verdict\na1,fra", "cases.csv"),
        ('{"alert_id": "a1", "verdict": "fraud"}\n{"alert_id": "a2", "ver', "cases.jsonl"),
        ("[1]\n", "cases.jsonl"),
        ('{"alert_id": "a1", "verdict": "fraud", "mood": 1}\n', "cases.jsonl"),
        ('{"alert_id": [1], "verdict": "fraud"}\n', "cases.jsonl"),
        ('{"alert_id": "a1", "verdict": {}}\n', "cases.jsonl"),
        ('{"event_id": "e1", "verdict": "fraud", "amount": true}\n', "cases.jsonl"),
    ],
    ids=range(9),
)
def test_a_file_that_was_cut_off_or_holds_something_else_is_not_taken(buckets, job, text, name, as_worded):
    ran = take(buckets, job, text, name)
    assert ran.code == 1
    assert as_worded(ran.err)
    assert "Traceback" not in ran.err
    assert not job.verdicts.exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("alert_id,mood\na1,fraud\n", "cases.csv"),
        ("alert_id,note\na1,fraud\n", "cases.csv"),
        ("alert_id,verdict,verdict\na1,fraud,fraud\n", "cases.csv"),
        (b"alert_id,verdict\n\xff,fraud\n", "cases.csv"),
        ("", "cases.txt"),
        ("\n", "cases.csv"),
        ("alert_id,verdict\n", "cases.csv"),
        ("alert_id,verdict\n\n", "cases.csv"),
    ],
    ids=range(8),
)
def test_a_file_that_cannot_be_read_at_all_is_one_line(buckets, job, text, name, as_worded):
    assert as_worded(one_line(take(buckets, job, text, name), 1))


def test_a_file_may_name_alerts_that_are_elsewhere(buckets, job, as_worded):
    text = "alert_id,verdict\nelsewhere,fraud\n"
    assert told(take(buckets, job, text, "cases.csv", "--unchecked")).startswith("1 verdict of ")
    assert as_worded(one_line(buckets("verdict", "--from-file", job.root / "no.csv", "--conf", job.conf), 1))


# the list of verdicts


def test_the_latest_verdicts_are_listed_and_all_are_kept(buckets, say, job, monkeypatch):
    assert "no verdicts yet" in told(buckets("verdicts", job.conf))
    say("a1", "unclear")
    say("a1", "fraud", "--note", "called\nthe \x1b[31mpayer")
    say("fraud", "--event", "e9")
    shown = json.loads(told(buckets("verdicts", job.conf, "--json")))
    assert [(each["alert_id"], each["event_id"], each["verdict"]) for each in shown] == [
        (None, "e9", "fraud"),
        ("a1", "e1", "fraud"),
    ]
    assert len(json.loads(told(buckets("verdicts", job.conf, "--json", "--all")))) == 3
    monkeypatch.setenv("COLUMNS", "80")
    text = told(buckets("verdicts", job.conf))
    assert max(map(len, text.splitlines())) <= 80
    assert "called\\nthe \\x1b[31mpayer" in text
    assert "2 of 2 verdicts" in text
    assert "1 of 1 verdicts on alerts of rule large" in told(buckets("verdicts", job.conf, "--rule", "large"))


def test_alerts_wait_until_they_or_their_event_have_a_verdict(buckets, say, job, as_worded):
    def waiting(*options: str) -> list[str]:
        shown = told(buckets("verdicts", job.conf, "--open", "--json", *options))
        return [each["alert_id"] for each in json.loads(shown)]

    assert waiting() == ["a3", "a2", "b1", "a1"]
    assert waiting("--rule", "often") == ["b1"]
    say("a1", "fraud")
    assert waiting() == ["a3", "a2"]
    say("legitimate", "--event", "e3")
    say("s2", "unclear")
    assert waiting() == []
    assert "no alerts wait for a verdict" in told(buckets("verdicts", job.conf, "--open"))
    assert as_worded(one_line(buckets("verdicts", job.conf, "--open", "--all"), 1))


# the quality of rules


def quality(buckets, job: VerdictJob, *options: object) -> dict[str, dict[str, Any]]:
    report = json.loads(told(buckets("rules", "quality", job.conf, "--json", *options)))
    return {each["rule_id"]: each for each in report.pop("rules")} | {"": report}


def test_the_quality_of_rules_counts_verdicts_on_alerts_events_and_what_did_not_fire(buckets, say, job):
    say("a1", "fraud")
    say("a2", "fraud")
    say("a2", "legitimate")
    say("fraud", "--event", "e9", "--at", "2026-01-01T00:30Z", "--key", "payer=p1", "--amount", "5")
    say("h5", "fraud")
    found = quality(buckets, job, "--verdicts", "1")
    assert found.keys() == {"", "large", "often", "quiet", "trial"}
    assert (found[""]["frauds"], found[""]["measure"]) == (3, "amount")
    large = found["large"]
    assert (large["alerts"], large["held_alerts"], large["fraud"], large["legitimate"]) == (3, 1, 1, 1)
    assert (large["precision"]["share"], large["false_positives"], large["recall"]["share"]) == (0.5, 0.5, 1 / 3)
    assert (large["caught"], large["missed"], large["missed_but_held"], large["caught_alone"]) == (1, 2, 1, 0)
    assert (large["amount_caught"], large["amount_missed"]) == ("10.00", "15.00")
    assert (large["keys_with_fraud"], large["keys_detected"], large["time_to_detect"]) == (1, 1, HOUR_MS / 2)
    assert large["time_to_decide"] == 1000
    assert (found["often"]["alerts"], found["often"]["fraud"], found["often"]["verdict_by_event"]) == (1, 1, 1)
    trial = found["trial"]
    assert (trial["state"], trial["alerts"], trial["shadow_alerts"], trial["legitimate"]) == ("SHADOW", 0, 2, 1)
    assert (found["quiet"]["alerts"], found["quiet"]["advice"]) == (0, "not enough verdicts")


def test_only_alerts_and_frauds_of_a_time_count(buckets, say, job):
    say("a1", "fraud")
    say("fraud", "--event", "without-time")
    found = quality(buckets, job, "--from", "2026-01-01T01:00", "--to", "2026-01-01T03:00")
    assert (found["large"]["alerts"], found["large"]["held_alerts"], found["trial"]["shadow_alerts"]) == (2, 0, 1)
    assert (found[""]["frauds"], found[""]["frauds_without_time"]) == (1, 1)
    assert quality(buckets, job, "--to", "2026-01-01T01:00")[""]["frauds"] == 0
    assert quality(buckets, job)[""]["frauds"] == 2


def test_a_table_of_fraud_counts_for_recall_and_not_for_precision(buckets, say, job, tmp_path):
    say("a2", "legitimate")
    rows = {"id": ["e1", "e3", "e9"], "at": [None, None, START_MS]}
    rows |= {"amount": [None, None, "7.25"], "payer": [None, None, "p1"]}
    pq.write_table(pa.table(rows), tmp_path / "fraud.parquet")
    write_deltalake(tmp_path / "fraud", pa.table(rows).rename_columns(["event_id", "at", "amount", "payer"]))
    (tmp_path / "fraud.csv").write_text(f"id,at,amount,payer\ne1,,,\ne3,,,\ne9,{START_MS},7.25,p1\n")
    lines = [{name: values[index] for name, values in rows.items()} for index in range(3)]
    lines.append({"verdict": "legitimate", "id": "e2"})
    (tmp_path / "fraud.jsonl").write_text("\n".join(map(json.dumps, lines)))
    results = [
        quality(buckets, job, "--fraud", tmp_path / name, "--verdicts", "1")
        for name in ("fraud.parquet", "fraud", "fraud.csv", "fraud.jsonl")
    ]
    assert all(result == results[0] for result in results)
    large = results[0]["large"]
    assert (results[0][""]["frauds"], large["caught"], large["caught_alone"], large["fraud"]) == (3, 2, 1, 0)
    assert (large["amount_caught"], large["amount_missed"], large["legitimate"]) == ("20.00", "7.25", 1)
    assert (large["keys_detected"], large["time_to_detect"]) == (2, HOUR_MS / 2)
    (tmp_path / "cases.jsonl").write_text('{"event_ids": ["e1", "e3"]}')
    assert quality(buckets, job, "--fraud", tmp_path / "cases.jsonl")["large"]["caught"] == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--fraud", "none.csv"],
        ["--fraud", "rules.yaml"],
        ["--keep", "much"],
        ["--retire", "50%"],
        ["--from", "soon"],
        ["--measure", "weight"],
        ["--html", "rules.yaml/page.html"],
    ],
    ids=lambda value: value[0] + value[1][:8] if isinstance(value, list) else None,
)
def test_what_cannot_be_asked_is_one_line(buckets, job, monkeypatch, options, as_worded):
    monkeypatch.chdir(job.root)
    assert as_worded(one_line(buckets("rules", "quality", job.conf, *options), 1))


@pytest.mark.parametrize("options", [(), ("--open",)])
def test_a_rule_that_there_is_not_is_an_error_and_one_without_verdicts_is_none(buckets, job, options, as_worded):
    said = one_line(buckets("verdicts", job.conf, "--rule", "nosuch", *options), 1)
    assert as_worded(said)
    assert "quiet" in told(buckets("verdicts", job.conf, "--rule", "quiet", *options))


def test_a_job_without_tables_of_alerts_says_so(buckets, tmp_path, as_worded):
    job = VerdictJob(tmp_path / "job")
    assert as_worded(one_line(buckets("rules", "quality", job.conf), 1))


def test_tables_fit_80_columns_and_the_page_is_whole_and_escaped(buckets, say, job, monkeypatch, tmp_path, as_worded):
    job.write("alerts", [alert(f"x{n}", "<b>payer-to-beneficiary-24h</b>", f"x{n}", n, "p3") for n in range(30)])
    lines = [f"x{number},{'fraud' if number % 10 == 0 else 'legitimate'}" for number in range(30)]
    told(take(buckets, job, "\n".join(["alert_id,verdict", *lines])))
    monkeypatch.setenv("COLUMNS", "80")
    page = tmp_path / "quality.html"
    ran = buckets("rules", "quality", job.conf, "--html", page)
    assert ran.code == 0
    assert as_worded(ran.err)
    assert max(map(len, ran.out.splitlines())) <= 80
    why = "3 of 30 were fraud: with 95 % confidence 3.5 % to 26 %, and at least 30 % is asked for; it caught 3 frauds"
    assert f"tune; {why} alone" in " ".join(ran.out.split())
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;payer-to-beneficiary-24h&lt;/b&gt;" in text
    assert "<b>payer" not in text
    assert why in text
    assert text.rstrip().endswith("</html>")
    assert text.count("<svg") == 6
    assert '<td class="number">1 of 1</td>' in text
    assert "built-in" not in text
    # A bar only of what has enough verdicts; of the others the interval.
    assert text.count("<rect") == 1
    assert text.count(">not enough verdicts</span>") == 4
    assert "http" not in text


def test_confirmed_fraud_is_ids_with_what_is_known_of_each(say, job):
    say("a2", "fraud")
    say("fraud", "--event", "e9", "--amount", "5")
    say("a1", "unclear")
    found = confirmed_fraud(load_job(job.conf))
    assert {event_id: each.amount for event_id, each in found.items()} == {"e2": Decimal("20.50"), "e9": Decimal(5)}
    assert found["e2"].event_time_ms == START_MS + 2 * HOUR_MS
    assert found["e2"].fields["payer"] == "p1"


# ids of alerts


def test_the_beginning_of_an_id_is_enough_where_it_names_one_alert(say, job):
    assert say("s2", "fraud").startswith("alert s2 of trial")
    job.write("held_alerts", [alert("c0ffee11", "large", "e7", 6), alert("c0ffee22", "often", "e 8", 6)])
    assert say("c0ffee1", "fraud").startswith("alert c0ffee11 of large")


def test_the_beginning_of_several_ids_is_refused_with_them(buckets, job, as_worded):
    rows = [alert(f"c0ffee{n}", "large", f"e {n}", 6) for n in range(5)]
    job.write("alerts", rows[:2])
    job.write("held_alerts", rows[2:])
    said = one_line(buckets("verdict", "c0", "fraud", "--conf", job.conf), 1)
    assert as_worded(said)
    assert not job.verdicts.exists()


def test_a_whole_id_is_not_ambiguous_though_others_begin_with_it(say, job):
    job.write("alerts", [alert("a12", "large", "e7", 6)])
    assert say("a1", "fraud").startswith("alert a1 of large, event e1")


def test_unchecked_takes_an_id_as_it_is(say, job):
    say("s", "fraud", "--unchecked")
    assert [row["alert_id"] for row in kept(job)] == ["s"]
