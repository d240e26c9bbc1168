"""Why there was no alert, in one line each; rules over alerts, buckets and pages."""

from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from buckets.cli.explain import page_of, show
from buckets.errors import BucketsError
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.maker import Explainer
from buckets.history.explain.words import explained as explained_texts
from buckets.history.explain.words import headline
from buckets.lists.base import Entry
from buckets.lists.keys import KeyForm
from buckets.moment import exact_time_text
from buckets.outputs import columns
from buckets.rules.rule import Rule
from tests.core.archived_job import ArchivedJob
from tests.core.examples import SCHEMA, rule, until
from tests.core.past import explainer_of
from tests.core.recorded_job import RecordedJob

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def event(number: int, at_ms: int = 0, **changes: Any) -> dict[str, Any]:
    fields = {"id": f"e{number}", "at": START_MS + at_ms, "payer": "p", "kind": "a", "account": 7, "vip": "true"}
    return fields | {"amount": "60.00", "fee": 1, "position": number} | changes


@pytest.fixture
def explained(tmp_path: Path):
    """Scores batches of events under one rule, and explains it at one of them."""

    def run(one, *batches, at: str = "e2", **engine: Any) -> Explanation:
        job = ArchivedJob(tmp_path, SCHEMA, **{"allowed_lateness": "1h", "shards": 1} | engine)
        job.take(one if isinstance(one, list) else [one])
        for batch in batches:
            job.batch(batch)
        return explainer_of(job, tmp_path / "results").event(at, "r")

    return run


def reasons(found: Explanation) -> list[tuple[str, str]]:
    return [(reason.code, reason.sentence) for reason in found.reasons]


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"state": "PAUSE"}, "paused", "the rule was paused (PAUSE): it kept its events and was not evaluated"),
        ({"state": "DRAFT"}, "draft", "the rule was a draft (DRAFT): it was not in force"),
        (
            {"effective": {"from": "2030-01-01"}},
            "not effective",
            "the rule is in effect from 2030-01-01 00:00:00.000, and the event is outside of that",
        ),
        (
            {"where": {"kind": "b", "amount": {">": "10"}}},
            "filter",
            "the rule does not apply to the event: kind is b, and kind is a",
        ),
        (
            {"where": "amount > 100 OR (kind = 'b' AND vip)"},
            "filter",
            "the rule does not apply to the event: amount 60 is not above 100 by 40; kind (a) is b: does not hold",
        ),
    ],
)
def test_a_rule_that_is_not_evaluated_says_why(explained, changes, code, said):
    assert reasons(explained(rule(**changes), [event(1), event(2, 5)])) == [(code, said)]


def test_an_event_of_a_topic_that_is_not_judged_counts_in_windows_and_is_told_so(explained):
    batch = [event(1), event(2, 5, source="atm[0]", judged=False), event(3, 6, judged=True)]
    said = "the event is in the timeline and not judged: its topic atm is `judge: false`"
    assert reasons(explained(rule(), batch)) == [("not judged", said)]


def test_a_judged_event_is_explained_with_those_that_are_not(explained):
    batch = [event(1, judged=False), event(2, 5, judged=True)]
    found = explained(rule(), batch)
    assert (found.outcome, str(found.features[0].value)) == ("alert", "120.00")


@pytest.mark.parametrize(
    ("second", "engine", "code", "said"),
    [
        (event(2, -5), {}, "late", "the event came late, and the job only adds late events (`late: add`): the latest"),
        (event(2, -5), {"late": "drop"}, "dropped", "the event came late, and the job drops late events: the latest"),
        (event(2, -3 * HOUR_MS), {}, "too late", "the event came too late: the latest event of its key in group payer"),
        (event(2), {"collision": "keep_first"}, "not kept", "the event shares its time with e1, which came first and"),
        (event(2, payer=None), {}, "no key", "the rule does not see the event: it groups by payer, which is missing"),
        (
            event(2, payer=None),
            {"nulls": "strict"},
            "dead letter",
            "the event was a dead letter: payer: is missing or null",
        ),
        (
            event(2, 1, amount="92233720368547758.07"),
            {},
            "dead letter",
            "the event was a dead letter: amount: with this",
        ),
    ],
)
def test_an_event_that_is_not_evaluated_says_what_became_of_it(explained, second, engine, code, said):
    found = explained(rule(), [event(1)], [second], **engine)
    ((known, sentence),) = reasons(found)
    assert (known, sentence[: len(said)]) == (code, said)
    assert found.outcome == "not evaluated"


def test_a_rule_that_there_was_not_says_when_it_came_or_went(tmp_path, as_worded):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    for rules, number in (([rule("other")], 1), ([rule("other"), rule()], 2), ([rule("other")], 3)):
        job.take(rules)
        job.batch([event(number, number)])
    explainer = explainer_of(job, tmp_path / "results")
    assert [explainer.event(f"e{number}", "r").reasons[0].code for number in (1, 3)] == ["not yet", "deleted"]
    assert "it came with version 2" in explainer.event("e1", "r").reasons[0].sentence
    with pytest.raises(BucketsError, check=as_worded):
        explainer.event("e1", "nix")
    assert explainer.event("e2", "r").outcome == "alert"


def test_what_cannot_be_found_is_said_in_one_line(tmp_path, as_worded):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    job.take([rule()])
    job.batch([event(1), event(1, 5), {"id": "odd", "at": "never", "raw": '{"id": "odd"}', "position": 3}])
    explainer = explainer_of(job, tmp_path / "results")
    with pytest.raises(BucketsError, check=as_worded):
        explainer.event("e1", "r")
    assert explainer.event("e1", "r", START_MS + 5).outcome == "alert"
    with pytest.raises(BucketsError, check=as_worded):
        explainer.event("e9", "r")
    with pytest.raises(BucketsError, check=as_worded):
        explainer.alert("x")
    ((code, said),) = reasons(explainer.event("odd", "r"))
    assert code == "dead letter"
    assert said.endswith("at: 'never' is not a decimal number")


def test_a_cooldown_names_the_alert_that_began_it_and_a_snooze_its_entry(tmp_path):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    snooze = {"key": {"payer": "p"}, "until": "2023-11-14T22:13:20.002Z", "reason": "moves house", "author": "ann"}
    job.take([rule(cooldown="1m", snoozes=[snooze], limit={"operator": ">=", "value": "60"})])
    job.batch([event(1), event(2, 5), event(3, 9), event(4, 9, payer="q")])
    explainer = explainer_of(job, tmp_path / "results")
    (alert,) = [row for row in job.pipeline.output(columns.ALERTS) if row["event_id"] == "e2"]
    assert reasons(explainer.event("e1", "r")) == [
        ("snooze", "snoozed for payer p until 2023-11-14 22:13:20.002, by ann: moves house")
    ]
    assert explainer.event("e2", "r").outcome == "alert"
    because = f"because of alert {alert['alert_id']} at 2023-11-14 22:13:20.005"
    held = explainer.event("e3", "r")
    assert reasons(held) == [("cooldown", f"cooldown of 1m until 2023-11-14 22:14:20.005, {because}")]
    assert held.outcome == "held back"
    assert explainer.event("e4", "r").policy == ()


@pytest.mark.parametrize(("nulls", "counted"), [("strict", 2), ("leave_out", 3)])
def test_an_event_that_lacked_what_another_rule_needed_counts_as_it_did_then(tmp_path, nulls, counted):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1, nulls=nulls)
    other = rule("other", group_by=["kind"])
    job.take([rule(), other])
    job.batch([event(1), event(2, 5, kind=None)])
    job.take([rule()], until(START_MS + 5))
    job.batch([event(3, 9)])
    (feature,) = explainer_of(job, tmp_path / "results").event("e3", "r").features
    assert feature.comparison.equal, feature.comparison.sentence
    assert feature.count == counted


def test_events_without_a_value_are_not_counted_and_a_feature_outside_of_its_group_says_why(tmp_path):
    features = {
        "mine": {"function": "sum", "of": "amount", "window": "1h"},
        "kinds": {"function": "count", "window": "1h", "group_by": ["kind"]},
    }
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    one = rule(aggregate=None, window=None, limit=None, features=features, when="mine > 0 AND kinds IS NULL")
    job.take([one])
    job.batch([event(1), event(2, 5, amount=None), event(3, 9, kind=None)])
    found = explainer_of(job, tmp_path / "results").event("e3", "r")
    mine, kinds = found.features
    assert found.outcome == "alert"
    assert (mine.count, [(each.event_id, each.counts, each.note) for each in mine.entries][1]) == (
        2,
        ("e2", False, "has no amount"),
    )
    assert (kinds.value, kinds.why_null) == (None, "kind is missing or null, and the feature groups by it")
    assert mine.comparison.equal
    assert kinds.comparison.equal


def test_a_rule_that_counts_from_its_last_alert_on_says_so(explained):
    one = rule(reset_on_alert=True)
    found = explained(one, [event(1), event(2, 5), event(3, 9)], at="e3")
    (feature,) = found.features
    assert (found.outcome, feature.count, feature.reset_ms) == ("did not fire", 1, START_MS + 5)
    assert [entry.note for entry in feature.entries] == [
        "came before the alert that reset the rule",
        "came before the alert that reset the rule",
        "the event itself",
    ]


def test_a_new_rule_says_since_when_it_is_complete(tmp_path):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    job.take([rule("other", group_by=["kind"])])
    job.batch([event(1)])
    job.take([rule("other", group_by=["kind"]), rule()], until(START_MS))
    job.batch([event(2, 5)])
    found = explainer_of(job, tmp_path / "results").event("e2", "r")
    assert (found.warm, found.features[0].count) == (False, 1)
    assert found.warmth == "not complete: only from 2023-11-14 23:13:20.001 on"
    assert [entry.note for entry in found.features[0].entries] == ["came before the rule was kept", "the event itself"]
    assert found.features[0].comparison.equal


def test_parts_of_a_condition_say_how_far_they_are_from_their_limit(explained):
    features = {
        "recent": {"function": "sum", "of": "amount", "window": "1m"},
        "usual": {"function": "avg", "of": "amount", "window": "1h", "where": "kind = 'b'"},
        "payments": {"function": "count", "window": "1h"},
    }
    when = "recent > 5 * usual OR payments >= 10 AND kind = 'a'"
    one = rule(aggregate=None, window=None, limit=None, features=features, when=when)
    found = explained(one, [event(1, kind="b"), event(2, 5, amount="240.01"), event(3, 6)])
    assert [(part.truth, part.text) for part in found.condition.tests()] == [
        ("true", "recent 300.01 is above 5 times usual 300 by 0.01"),
        ("false", "payments 2 is below 10 by 8"),
        ("true", "kind (a) is a: holds"),
    ]
    assert found.outcome == "alert"
    usual = found.features[1]
    assert [(entry.event_id, entry.counts, entry.note) for entry in usual.entries] == [
        ("e1", True, ""),
        ("e2", False, "the filter leaves it out; the event itself"),
    ]
    assert found.features[2].fates == {"counts": 2}


def test_a_part_without_a_value_says_why(explained):
    features = {"usual": {"function": "avg", "of": "amount", "window": "1h", "where": "kind = 'b'"}}
    one = rule(aggregate=None, window=None, limit=None, features=features, when="usual > 5")
    (part,) = explained(one, [event(2)]).condition.tests()
    assert (part.truth, part.text) == (
        "unknown",
        "usual (no value) is above 5 is unknown: no event in its window counts",
    )


def test_an_exact_value_lies_within_the_bounds_of_buckets(explained):
    precision = {"tail": "1m", "resolution": "10m", "edge": "include"}
    batch = [event(1, 0), event(2, 5 * 60_000), event(3, HOUR_MS - 1), event(4, HOUR_MS + 60_000)]
    found = explained(rule(), batch, at="e4", precision=precision)
    (feature,) = found.features
    assert (feature.comparison.equal, feature.comparison.within) == (False, True)
    sentence = "computed again: 180, within the recorded bounds 120 and 240 (of 240)"
    assert feature.comparison.sentence == sentence
    assert found.condition.text == "value 240 is above 100 by 140"
    assert not found.is_faulty


def test_a_recorded_value_that_is_wrong_is_a_fault(tmp_path):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    job.take([rule()])
    job.batch([event(1), event(2, 5)])
    for row in job.pipeline.found[columns.EVALUATIONS]:
        row["value"] += 1
    found = explainer_of(job, tmp_path / "results").event("e1", "r")
    assert found.is_faulty
    assert found.features[0].comparison.sentence == "computed again: 60, and 61 is recorded: they differ"


def over_alerts(tmp_path: Path) -> tuple[ArchivedJob, Explainer]:
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    features = {"alerts": {"function": "count", "window": "1h"}}
    often = rule("often", aggregate=None, window=None, limit=None, features=features, when="alerts >= 2", on="alerts")
    job.take([rule("large", score=5), rule("count", None, limit={"operator": ">", "value": "1"}), often])
    job.batch([event(1), event(2, 5), event(3, 9)])
    return job, explainer_of(job, tmp_path / "results")


def test_a_rule_over_alerts_is_explained_by_the_alerts_of_its_window(tmp_path):
    job, explainer = over_alerts(tmp_path)
    raised = [row for row in job.pipeline.output(columns.ALERTS) if row["rule_id"] == "often"]
    assert len(raised) == 3
    for count, row in enumerate(sorted(raised, key=lambda row: (row["position"], row["terms"])), 2):
        found = explainer.alert(row["alert_id"])
        (feature,) = found.features
        assert (found.outcome, feature.count, feature.comparison.equal) == ("alert", count, True)
        assert sum(entry.counts for entry in feature.entries) == count
    found = explainer.event("e1", "often")
    assert reasons(found) == [("no alert", "the event raised no alert, and the rule counts alerts")]
    first = explainer.event("e2", "often")
    assert first.notes == ("the event raised 2 alerts; this is of the first",)
    assert (first.outcome, first.features[0].count) == ("did not fire", 1)


def test_of_many_events_the_first_and_the_last_are_shown(tmp_path):
    job = ArchivedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    job.take([rule()])
    job.batch([event(number, number) for number in range(1, 31)])
    (feature,) = explainer_of(job, tmp_path / "results", most=6).event("e30", "r").features
    assert [entry.event_id for entry in feature.entries] == ["e1", "e2", "e3", "e28", "e29", "e30"]
    assert (feature.left_out, feature.count) == (24, 30)


class Checked(HTMLParser):
    """What a page would load from elsewhere or run."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.titles: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag, attrs):
        names = dict(attrs)
        if tag in ("script", "link", "img", "iframe") or "src" in names or "href" in names or "onload" in names:
            self.outside.append(tag)
        self._in_title = tag == "title"

    def handle_data(self, data):
        if self._in_title:
            self.titles.append(data)
            self._in_title = False


def test_a_page_needs_nothing_else_and_shows_text_as_text(explained, capsys):
    nasty = "<script>alert('x')</script>"
    batch = [event(1, kind=nasty), event(2, 5, id=nasty, kind=nasty)]
    found = explained(rule(where={"kind": nasty}), batch, at=nasty)
    assert found.outcome == "alert"
    page = page_of(found)
    assert nasty not in page
    checked = Checked()
    checked.feed(page)
    assert checked.outside == []
    assert any(
        title.startswith(f"{nasty}, 2023-11-14 22:13:20.005, 60.00 (the event itself)") for title in checked.titles
    )
    show(found)
    text = capsys.readouterr().out
    assert headline(found) in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def steps_shown(explained, *kinds: str) -> list[str]:
    """What a terminal shows of a sequence of a, b and a large c without d, at the last of some events."""
    steps = ["a", "b", {"c": "amount > 50"}]
    s = {"function": "sequence", "step_field": "kind", "steps": steps, "without": "d", "window": "1h"}
    one = rule(aggregate=None, window=None, limit=None, features={"s": s}, when="s")
    batches = [[event(number, number, kind=kind)] for number, kind in enumerate(kinds)]
    found = explained(one, *batches, at=f"e{len(kinds) - 1}")
    (feature,) = found.features
    assert feature.comparison.equal
    ((_, lines, _),) = explained_texts(found)["features"]
    return [
        line.replace(exact_time_text(START_MS)[:-3], "") for line in lines if ": none" in line or ": event " in line
    ]


def test_a_sequence_shows_its_steps_what_is_missing_and_what_came_between(explained):
    found = steps_shown(explained, "a", "a", "b", "x", "c")
    assert found == ["a: event e1 at 001", "b: event e2 at 002", "c (amount > 50): event e4 at 004"]


@pytest.mark.parametrize(
    ("kinds", "shown"),
    [
        ("bac", ["a: none", "b: event e0 at 000", "c (amount > 50): event e2 at 002"]),
        (
            "abdc",
            [
                "a: event e0 at 000",
                "b: event e1 at 001",
                "c (amount > 50): event e3 at 003",
                "d: event e2 at 002 came between",
            ],
        ),
        ("ab", ["a: none", "b: none", "c (amount > 50): none"]),
    ],
)
def test_a_sequence_that_is_not_there_shows_what_is_missing_or_came_between(explained, kinds, shown):
    assert steps_shown(explained, *kinds) == shown


def test_what_was_not_followed_in_time_is_named(explained):
    a = {"function": "absence", "step_field": "kind", "steps": ["a"], "without": "b", "within": "1s", "window": "1h"}
    one = rule(aggregate=None, window=None, limit=None, features={"a": a}, when="a > 0")
    kinds = [("a", 0), ("b", 10), ("a", 20), ("a", 30), ("x", 1_020), ("b", 1_031)]
    batches = [[event(number, at, kind=kind)] for number, (kind, at) in enumerate(kinds)]
    (feature,) = explained(one, *batches, at="e5").features
    assert [(step.name, step.event_id) for step in feature.steps] == [("a", "e2"), ("a", "e3")]
    assert feature.comparison.equal
    assert feature.value == Decimal("1.011")


def test_an_event_that_came_late_tells_of_nothing(explained):
    a = {"function": "absence", "step_field": "kind", "steps": ["a"], "without": "b", "within": "1s", "window": "1h"}
    one = rule(aggregate=None, window=None, limit=None, features={"a": a}, when="a > 0")
    batches = [[event(0, 0)], [event(1, 5_000, kind="x")], [event(2, 4_000, kind="x")]]
    (feature,) = explained(one, *batches, at="e2", late="evaluate").features
    assert (feature.value, feature.steps, feature.comparison.equal) == (None, (), True)


def test_keys_of_several_columns_and_addresses_are_looked_for_in_the_lists_of_the_batch(tmp_path):
    job = RecordedJob(tmp_path, SCHEMA, allowed_lateness="1h", shards=1)
    features = {"n": {"function": "count", "window": "1h"}}
    when = "n >= 1 AND ((payer, kind) IN LIST pairs OR lookup(nets, kind, 'class') = 'vpn')"
    written = {"rule_id": "r", "group_by": ["payer"], "features": features, "when": when}
    job.use([Rule.model_validate(written)])
    for number, kind in ((1, "a"), (2, "a"), (3, "10.1.1.1"), (4, None)):
        job.use_list("pairs", {'["p","a"]': Entry()} if number == 1 else {}, KeyForm(2))
        job.use_list("nets", {"10.0.0.0/8": Entry({"class": "vpn"})}, KeyForm(1, "cidr"))
        job.batch([event(number, number, kind=kind)])
    explainer = explainer_of(job, tmp_path / "results")
    found = [explainer.event(f"e{number}", "r") for number in (1, 2, 3, 4)]
    assert [each.outcome for each in found] == ["alert", "did not fire", "alert", "did not fire"]
    parts = [each.condition.parts[1].parts for each in found]
    assert [[part.truth for part in each] for each in parts] == [
        ["true", "unknown"],
        ["false", "unknown"],
        ["false", "true"],
        ["unknown", "unknown"],
    ]
    assert [part.text for part in parts[2]] == [
        "(payer (p), kind (10.1.1.1)) is in the list pairs: does not hold",
        "class of kind (10.1.1.1) in the list nets is vpn: holds",
    ]
    assert "kind is missing" in parts[3][0].text
