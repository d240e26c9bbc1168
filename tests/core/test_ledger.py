"""The ledger beside a checkpoint: which rules judged which batch, also after a crash."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.basis import Basis
from buckets.engine_settings import EngineSettings
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.head import CODEC_VERSION
from buckets.ledger import KEPT_BATCHES, Ledger, Version, write_whole
from buckets.revision import Change
from buckets.rule import Rule
from buckets.rule_book import RuleBook
from buckets.rule_feed import FixedRules
from buckets.rule_set import first_rule_set
from buckets.terms import Terms
from tests.core.examples import SCHEMA, rule, since, until
from tests.strategies import precisions

ONE, OTHER = [rule("one")], [rule("other", group_by=["kind"])]


def basis(source: str = "json /events", schema: EventSchema = SCHEMA, subfolders: bool = False, **engine) -> Basis:
    return Basis(source, schema, EngineSettings.model_validate(engine), subfolders)


def schema_with(**changes) -> EventSchema:
    return EventSchema.model_validate(SCHEMA.model_dump() | changes)


def with_time(**changes) -> EventSchema:
    """The schema with another time."""
    return schema_with(event_time={"field": "at"} | changes)


def with_attributes(**changes) -> EventSchema:
    """The schema with other attributes; None takes one away."""
    attributes = SCHEMA.attributes | changes
    return schema_with(attributes={name: kind for name, kind in attributes.items() if kind is not None})


def with_measures(**changes) -> EventSchema:
    """The schema with other measures; None takes one away."""
    measures = SCHEMA.model_dump()["measures"] | changes
    return schema_with(measures={name: measure for name, measure in measures.items() if measure is not None})


def book_of(ledger: Ledger, rules: list[Rule]) -> RuleBook:
    return RuleBook(ledger, FixedRules(rules), SCHEMA, 0)


def ran(book: RuleBook, batch_id: int, latest_ms: int | None = 0) -> int:
    """Run a batch to its end; the version that judged it."""
    rule_set = book.for_batch(batch_id)
    book.done(batch_id, rule_set, until(latest_ms))
    return rule_set.version


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger(tmp_path / "checkpoint")


def files(ledger: Ledger) -> set[str]:
    folder = ledger.checkpoint
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Which rules judge which batch


def test_batches_are_judged_by_the_rules_in_force_and_a_change_is_a_new_version(ledger):
    assert [ran(book_of(ledger, ONE), batch) for batch in (0, 1)] == [1, 1]
    assert [ran(book_of(ledger, OTHER), batch) for batch in (2, 3)] == [2, 2]
    assert [ran(book_of(ledger, ONE), batch) for batch in (4, 5)] == [3, 3]
    again = tuple(rule.model_copy(update={"version": 2}) for rule in ONE)
    assert [ledger.rule_set(version).rules for version in (1, 2, 3)] == [tuple(ONE), tuple(OTHER), again]


def test_a_batch_that_is_run_again_has_the_rules_it_had(ledger):
    ran(book_of(ledger, ONE), 0)
    book_of(ledger, ONE).for_batch(1)
    again = book_of(ledger, OTHER)
    assert again.for_batch(1) == ledger.rule_set(1)
    assert again.for_batch(1).rules == tuple(ONE)
    assert ran(again, 1) == 1
    assert ran(again, 2) == 2


def test_a_batch_that_had_run_is_run_again_with_its_rules_while_newer_ones_exist(ledger):
    ran(book_of(ledger, ONE), 0)
    ran(book_of(ledger, OTHER), 1)
    assert book_of(ledger, OTHER).for_batch(0).rules == tuple(ONE)
    assert book_of(ledger, ONE).for_batch(1).rules == tuple(OTHER)


def test_the_version_is_recorded_before_the_batch_runs(ledger):
    book_of(ledger, ONE).for_batch(7)
    assert ledger.pinned(7) == {"ruleset_version": 1, "arrived": [], "done": False}


def test_a_version_written_by_a_run_that_died_at_once_is_taken_up(ledger):
    ran(book_of(ledger, ONE), 0)
    book = book_of(ledger, OTHER)
    book.for_batch(1)
    (ledger.checkpoint / "buckets" / "batches" / "000000001.json").unlink()
    assert ran(book_of(ledger, OTHER), 1) == 2


def test_what_has_arrived_is_added_up_over_batches(ledger):
    book = book_of(ledger, ONE)
    for batch, latest_ms in enumerate([None, -5, 700, 300, None]):
        ran(book, batch, latest_ms)
    arrived = [[], [[-5, -5]], [[-5, 700]], [[-5, 700]], [[-5, 700]]]
    assert [ledger.pinned(batch)["arrived"] for batch in range(5)] == arrived


def test_new_rules_begin_after_the_clock_of_the_batch_before(ledger):
    book = book_of(ledger, ONE)
    ran(book, 0, 700)
    ran(book, 1, 300)
    (group,) = book_of(ledger, OTHER).for_batch(2).groups
    assert set(since(group).values()) == {701}


# What else judges which batch


def terms(output: str = "delta", arrival: str | None = None, evaluations: bool = False, **changes) -> Terms:
    now = basis(**changes)
    return Terms(event_schema=now.schema, engine=now.engine, evaluations=evaluations, output=output, arrival=arrival)


OTHER_TERMS = [
    terms(late="drop"),
    terms(collision="keep_first"),
    terms(precision={"tail": "2h"}),
    terms(precision={"tail": "2h", "edge": "prorate"}),
    terms(precision={"groups": [{"group_by": ["payer"], "where": {"vip": True}, "tail": "5h"}]}),
    terms(evaluations=True),
    terms(schema=with_time(latest="2027-01-01")),
    terms(schema=with_attributes(country="string")),
    terms(schema=schema_with(attributes=dict(reversed(SCHEMA.attributes.items())))),
]


def judged(ledger: Ledger, batch_id: int, now: Terms) -> Terms:
    """Begin a batch, as a start of the job does; what it is judged by."""
    found = ledger.terms_for(batch_id, now)
    book_of(ledger, ONE).for_batch(batch_id)
    return found


@pytest.mark.parametrize("changed", OTHER_TERMS)
def test_a_batch_that_is_run_again_has_the_terms_it_was_begun_with_and_the_next_one_those_of_now(ledger, changed):
    before = terms()
    assert [judged(ledger, batch, before) for batch in range(3)] == [before] * 3
    for _ in range(2):
        assert judged(ledger, 2, changed).model_dump_json() == before.model_dump_json()
    assert [judged(ledger, batch, changed) for batch in (3, 4)] == [changed, changed]
    for again, expected in ((2, before), (3, changed), (4, changed)):
        assert judged(ledger, again, before).model_dump_json() == expected.model_dump_json()
    assert judged(ledger, 5, before) == before


def test_terms_are_written_when_they_change_and_before_the_batch_is_recorded(ledger):
    for batch, now in enumerate([terms(), terms(), terms(late="drop"), terms(late="drop"), terms()]):
        ledger.terms_for(batch, now)
        assert ledger.pinned(batch) is None
        judged(ledger, batch, now)
    assert {name for name in files(ledger) if "terms" in name} == {
        f"buckets/terms/{batch:09d}.json" for batch in (0, 2, 4)
    }


def test_a_start_that_died_between_terms_and_record_leaves_the_batch_to_the_terms_of_the_next(ledger):
    judged(ledger, 0, terms())
    ledger.terms_for(1, terms(late="drop"))
    for now in (terms(late="evaluate"), terms()):
        assert ledger.terms_for(1, now) == now
    assert judged(ledger, 1, terms()) == terms()
    assert judged(ledger, 1, terms(late="drop")) == terms()


def test_a_batch_that_an_earlier_release_began_has_the_terms_of_now(ledger):
    """It wrote no terms."""
    ran(book_of(ledger, ONE), 6)
    book_of(ledger, ONE).for_batch(7)
    assert judged(ledger, 7, terms(late="drop")) == terms(late="drop")
    assert judged(ledger, 8, terms(late="drop")) == terms(late="drop")
    assert judged(ledger, 8, terms()) == terms(late="drop")


@pytest.mark.parametrize(
    ("before", "now", "conflict"),
    [
        ({"output": "delta"}, {"output": "kafka"}, "was begun with output.kind delta, not kafka"),
        ({"output": "kafka"}, {"output": "delta"}, "was begun with output.kind kafka, not delta"),
        ({"arrival": "seen"}, {"arrival": "id"}, "was begun with source.arrival seen, not source.arrival id"),
        ({"arrival": "seen"}, {}, "was begun with source.arrival seen, not source.arrival left out"),
    ],
)
def test_a_batch_that_cannot_be_run_again_as_it_was_begun_is_refused_in_one_line(ledger, before, now, conflict):
    judged(ledger, 3, terms(**before))
    for _ in range(2):
        with pytest.raises(BucketsError) as error:
            ledger.terms_for(3, terms(**now))
        assert error.value.message == (
            f"batch 3 of checkpoint {ledger.checkpoint} {conflict}, and may be half written; go back to that until the "
            "batch is done, and change it then"
        )
    assert judged(ledger, 3, terms(**before)) == terms(**before)
    assert judged(ledger, 4, terms(**now)) == terms(**now)


@given(precisions(), st.sampled_from(["add", "drop"]), st.booleans())
def test_terms_are_read_as_they_were_written(precision, late, evaluations):
    groups = [{"group_by": ["kind"], "where": {"amount": {">=": "5.00"}}, "edge": "exclude"}]
    written = terms(precision=precision | {"groups": groups}, late=late, evaluations=evaluations)
    assert Terms.model_validate_json(written.model_dump_json()) == written


# Records


def test_records_that_spark_cannot_go_back_to_are_forgotten(ledger):
    book = book_of(ledger, ONE)
    for batch in range(KEPT_BATCHES + 3):
        ran(book, batch)
    names = sorted(path.stem for path in (ledger.checkpoint / "buckets" / "batches").iterdir())
    assert names == [f"{batch:09d}" for batch in range(3, KEPT_BATCHES + 3)]
    assert ledger.pinned(2) is None
    assert ledger.rule_set(1).rules == tuple(ONE)


def test_a_half_written_file_is_never_read(ledger):
    ran(book_of(ledger, ONE), 0)
    folder = ledger.checkpoint / "buckets"
    (folder / "rule_sets" / ".000002.json.partial").write_text('{"version": 2, "ru')
    (folder / "batches" / ".000000001.json.partial").write_text("{")
    assert ledger.latest_rule_set() == ledger.rule_set(1)
    assert ledger.pinned(1) is None
    assert ran(book_of(ledger, OTHER), 1) == 2
    assert not [name for name in files(ledger) if name.endswith(".partial")]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "folder" / "file.json"
    write_whole(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "after\udcff")
    assert path.read_text() == "before"
    write_whole(path, "after é")
    assert path.read_bytes() == "after é".encode()


# What a checkpoint was made for


def test_a_checkpoint_keeps_its_identity_and_another_has_another(ledger, tmp_path):
    identity = ledger.open(basis())
    assert Ledger(ledger.checkpoint).open(basis()) == identity
    assert Ledger(tmp_path / "other").open(basis()) != identity


def test_looking_at_a_checkpoint_writes_nothing(ledger):
    assert ledger.latest_rule_set() is None
    assert ledger.pinned(0) is None
    assert not ledger.checkpoint.exists()


@pytest.mark.parametrize(
    ("other", "conflict"),
    [
        ({"shards": 8}, "was made with engine.shards 16, not 8"),
        ({"allowed_lateness": "2h"}, "was made with engine.allowed_lateness 1h, not 2h"),
        ({"source": "csv /events"}, "was made for source json /events, not csv /events"),
        ({"schema": schema_with(event_id="uuid")}, "was made with event_id id, not uuid, in event schema 'payment'; "),
        (
            {"schema": schema_with(event_time="t")},
            "was made with event_time.field at, not t, in event schema 'payment'; ",
        ),
        ({"schema": with_time(unit="s")}, "was made with event_time.unit ms, not s, in event schema 'payment'; "),
        (
            {"schema": with_time(unit="s", latest="2027-01-01T00:00:00Z")},
            "was made with event_time.unit ms, not s, in event schema 'payment'; ",
        ),
        (
            {"schema": with_attributes(payer="long")},
            "was made with payer as a string attribute, not as a long attribute; ",
        ),
        (
            {"schema": with_attributes(payer=None)},
            "was made with payer as a string attribute, which the event schema does not declare any more; ",
        ),
        (
            {"schema": schema_with(attributes={}, measures={name: {"scale": 2} for name in SCHEMA.attributes})},
            "was made with payer as a string attribute, not as a measure of scale 2; ",
        ),
        (
            {"schema": with_measures(amount={"scale": 3})},
            "was made with amount as a measure of scale 2, not as a measure of scale 3; ",
        ),
        (
            {"schema": with_measures(amount=None)},
            "was made with amount as a measure of scale 2, which the event schema does not declare any more; ",
        ),
    ],
)
def test_a_checkpoint_of_another_job_is_refused_in_one_line(ledger, other, conflict):
    ledger.open(basis())
    before = (ledger.checkpoint / "buckets" / "job.json").read_bytes()
    with pytest.raises(BucketsError) as error:
        Ledger(ledger.checkpoint).open(basis(**other))
    assert error.value.message.startswith(f"checkpoint {ledger.checkpoint} {conflict}")
    assert "name a new checkpoint" in error.value.message
    assert "\n" not in error.value.message
    assert (ledger.checkpoint / "buckets" / "job.json").read_bytes() == before


def test_a_checkpoint_of_another_format_is_refused(ledger):
    ledger.open(basis())
    job = ledger.checkpoint / "buckets" / "job.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"format": 2}))
    with pytest.raises(BucketsError, match="has format 2, and this release reads format 1"):
        ledger.open(basis())


def change_job(ledger: Ledger, **changes) -> None:
    """Change what is written in job.json; None takes a field away."""
    job = ledger.checkpoint / "buckets" / "job.json"
    written = json.loads(job.read_text()) | changes
    job.write_text(json.dumps({name: value for name, value in written.items() if value is not None}))


def written_job(ledger: Ledger) -> dict:
    return json.loads((ledger.checkpoint / "buckets" / "job.json").read_text())


def test_a_checkpoint_that_says_nothing_of_folders_below_its_source_gets_what_is_set_now_and_keeps_it(ledger):
    ledger.open(basis())
    change_job(ledger, subfolders=None)
    ledger.open(basis(subfolders=True))
    with pytest.raises(
        BucketsError, match=r"was made with source.subfolders true, not false; go back to that, or name"
    ):
        ledger.open(basis())


def test_a_checkpoint_of_a_later_codec_is_refused(ledger):
    ledger.open(basis())
    change_job(ledger, codec=CODEC_VERSION + 1)
    said = f"was written by codec version {CODEC_VERSION + 1}, and this release reads 1 to {CODEC_VERSION}; "
    with pytest.raises(BucketsError, match=said):
        ledger.open(basis())
    assert written_job(ledger)["codec"] == CODEC_VERSION + 1


@pytest.mark.parametrize("codec", [None, 1, CODEC_VERSION], ids=["not written", "first", "this one"])
def test_a_checkpoint_of_this_codec_or_an_earlier_one_goes_on_and_is_of_this_one_then(ledger, codec):
    """Before codecs had a number in it, there was only the first."""
    identity = ledger.open(basis())
    change_job(ledger, codec=codec)
    assert ledger.open(basis()) == identity
    assert written_job(ledger)["codec"] == CODEC_VERSION


# Precision, which may change


TAIL = {"tail": "2h"}
RAW, COARSE = "every event raw", "raw for 2h, then 1m buckets"
OVERRIDE = {"groups": [{"group_by": ["payer"], "tail": "5h"}]}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, TAIL, f"(all groups: {RAW} until now, {COARSE} from now on)"),
        (TAIL, {}, f"(all groups: {COARSE} until now, {RAW} from now on)"),
        (TAIL, TAIL | {"resolution": "5m"}, f"{COARSE} until now, raw for 2h, then 5m buckets from now on"),
        (
            TAIL,
            TAIL | {"tiers": [{"after": "2d", "resolution": "1h"}]},
            f"{COARSE} until now, {COARSE}, after 2d 1h from now on",
        ),
        (TAIL, TAIL | OVERRIDE, "(payer: as all groups until now, raw for 5h, then 1m buckets from now on)"),
        (TAIL | OVERRIDE, TAIL, "(payer: raw for 5h, then 1m buckets until now, as all groups from now on)"),
        (
            TAIL | OVERRIDE,
            {"tail": "3h", "groups": [{"group_by": ["payer"], "tail": "all"}]},
            f"(all groups: {COARSE} until now, raw for 3h, then 1m buckets from now on; "
            f"payer: raw for 5h, then 1m buckets until now, {RAW} from now on)",
        ),
    ],
    ids=["buckets come", "buckets go", "wider", "a tier", "a group apart", "a group no longer apart", "two"],
)
def test_a_precision_that_has_changed_is_said_once_and_the_checkpoint_goes_on(ledger, before, now, said):
    identity = ledger.open(basis(precision=before))
    text = ledger.carried_over(basis(precision=now))
    assert text.startswith("precision has changed (")
    assert said in text
    assert "\n" not in text
    assert ledger.open(basis(precision=now)) == identity
    assert ledger.carried_over(basis(precision=now)) is None


@pytest.mark.parametrize("precision", [{}, TAIL, TAIL | OVERRIDE], ids=["raw", "buckets", "a group apart"])
def test_a_precision_that_is_the_same_is_not_mentioned(ledger, precision):
    assert ledger.carried_over(basis(precision=precision)) is None
    ledger.open(basis(precision=precision))
    assert ledger.carried_over(basis(precision=precision)) is None


def test_a_checkpoint_from_before_precision_could_be_set_holds_raw_events(ledger):
    ledger.open(basis())
    change_job(ledger, precision=None)
    assert ledger.carried_over(basis()) is None
    assert f"all groups: {RAW} until now, {COARSE} from now on" in ledger.carried_over(basis(precision=TAIL))


# What a reader finds


def test_groups_are_all_that_ever_were_each_as_it_was_last(ledger):
    assert ledger.groups() == {}
    for batch, rules in enumerate(([rule("a")], [rule("a"), rule("f", "fee")], OTHER)):
        ran(book_of(ledger, rules), batch)
    groups = ledger.groups()
    assert [(group.fields, group.measures) for group in groups.values()] == [
        (("payer",), ("amount", "fee")),
        (("kind",), ("amount",)),
    ]
    assert all(identity == group.group_id for identity, group in groups.items())


def test_the_event_schema_is_that_of_the_last_start(ledger):
    ledger.open(basis())
    assert ledger.event_schema() == SCHEMA
    wider = schema_with(attributes={**SCHEMA.attributes, "country": "string"})
    ledger.open(basis(schema=wider))
    assert ledger.event_schema() == wider


def test_what_is_no_checkpoint_has_no_event_schema(ledger):
    for _ in range(2):
        with pytest.raises(
            BucketsError, match=r"is no checkpoint: there is no buckets/job\.json in it; give the folder"
        ):
            ledger.event_schema()
        ledger.checkpoint.mkdir(exist_ok=True)


YEAR_2027, YEAR_2300 = "2027-01-01T00:00:00+00:00", "2300-01-01T00:00:00+00:00"
FIRST, LAST = "1900-01-01T00:00:00+00:00", "2200-01-01T00:00:00+00:00"


def taken_now(bound: str, before: str, now: str) -> str:
    return (
        f"event_time.{bound} has changed ({before} until now, {now} from now on); events that have been taken already "
        "stay"
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"schema": with_time(latest=YEAR_2027)}, taken_now("latest", LAST, YEAR_2027)),
        ({"schema": with_time(latest=YEAR_2300)}, taken_now("latest", LAST, YEAR_2300)),
        ({"schema": with_time(earliest=YEAR_2027)}, taken_now("earliest", FIRST, YEAR_2027)),
        ({"schema": with_time(earliest="1800-01-01")}, taken_now("earliest", FIRST, "1800-01-01T00:00:00")),
        (
            {"schema": with_time(earliest="1990-01-01", latest=YEAR_2027)},
            f"{taken_now('earliest', FIRST, '1990-01-01T00:00:00')}; {taken_now('latest', LAST, YEAR_2027)}",
        ),
        ({"schema": with_time(latest="2200-01-01", unit="ms")}, None),
        ({"late": "drop"}, "engine.late has changed (add until now, drop from now on)"),
        ({"collision": "replace"}, "engine.collision has changed (keep until now, replace from now on)"),
        (
            {"precision": {"edge": "prorate"}},
            "engine.precision.edge has changed (include until now, prorate from now on)",
        ),
        (
            {"precision": {"groups": [{"group_by": ["payer"], "edge": "exclude"}]}},
            f"precision has changed (payer: as all groups until now, {RAW} from now on); what lies in buckets stays as "
            "coarse as it is, and bounds take it so; "
            "engine.precision.edge of group payer has changed (include until now, exclude from now on)",
        ),
        (
            {"schema": with_attributes(country="string")},
            "the event schema has a field more, country as a string attribute",
        ),
        (
            {"schema": with_measures(tip={"scale": 1})},
            "the event schema has a field more, tip as a measure of scale 1",
        ),
        ({"schema": schema_with(name="other", version=2)}, None),
        ({"schema": schema_with(attributes=dict(reversed(SCHEMA.attributes.items())))}, None),
    ],
)
def test_what_does_not_touch_the_state_may_change_and_is_said_once(ledger, other, said):
    identity = ledger.open(basis())
    assert ledger.carried_over(basis()) is None
    assert ledger.carried_over(basis(**other)) == said
    assert ledger.open(basis(**other)) == identity
    written = json.loads((ledger.checkpoint / "buckets" / "job.json").read_text())
    assert written == basis(**other).to_json() | {"id": identity}
    assert ledger.carried_over(basis(**other)) is None


def test_policies_that_an_earlier_release_did_not_write_are_not_said_to_have_changed(ledger):
    ledger.open(basis())
    change_job(ledger, policies=None)
    assert ledger.carried_over(basis(late="drop")) is None
    ledger.open(basis(late="drop"))
    assert ledger.carried_over(basis(late="add")) == "engine.late has changed (drop until now, add from now on)"


def test_a_field_that_was_added_may_not_go_again(ledger):
    ledger.open(basis())
    ledger.open(basis(schema=schema_with(attributes={**SCHEMA.attributes, "country": "string"})))
    said = "was made with country as a string attribute, which the event schema does not declare any more"
    with pytest.raises(BucketsError, match=said):
        ledger.open(basis())


def test_a_folder_with_something_else_in_it_is_no_checkpoint(ledger):
    ledger.checkpoint.mkdir()
    (ledger.checkpoint / "letter.txt").write_text("dear")
    with pytest.raises(BucketsError, match="holds something that this program did not write; name a new folder"):
        ledger.open(basis())
    assert files(ledger) == {"letter.txt"}


def test_a_file_is_no_checkpoint(ledger):
    ledger.checkpoint.write_text("dear")
    with pytest.raises(BucketsError, match="holds something that this program did not write"):
        ledger.open(basis())


def test_an_empty_folder_may_become_a_checkpoint(ledger):
    ledger.checkpoint.mkdir()
    assert ledger.open(basis()) == ledger.open(basis())


def test_a_start_that_died_while_it_wrote_its_first_file_can_be_repeated(ledger):
    folder = ledger.checkpoint / "buckets"
    folder.mkdir(parents=True)
    (folder / ".job.json.partial").write_text('{"format": 1, "sou')
    ledger.open(basis())
    assert files(ledger) == {"buckets/job.json"}


# Versions of the rules, and how far a topic of them has been read


CHANGE = Change("put", "one", 1, None, ONE[0], "ann", "first", 5, "topic rules@0")


def test_a_version_is_kept_with_what_led_to_it(ledger):
    ledger.keep_rule_set(first_rule_set(ONE), [CHANGE], 3, 17, "topic rules")
    (version,) = ledger.history()
    assert (version.version, version.first_batch, version.position, version.place) == (1, 3, 17, "topic rules")
    assert version.changes == (CHANGE,)
    assert version.made_ms is not None
    assert ledger.history(after=1) == []
    assert ledger.rule_set(1) == first_rule_set(ONE)


def test_versions_that_an_earlier_release_wrote_are_read(ledger):
    """It wrote the rule set and nothing else."""
    write_whole(ledger.checkpoint / "buckets" / "rule_sets" / "000001.json", first_rule_set(ONE).to_json())
    assert ledger.latest_rule_set() == first_rule_set(ONE)
    assert ledger.history() == [Version(1, None, None, None, None, ())]
    assert ledger.rules_position("topic rules") is None
    assert ran(book_of(ledger, ONE), 0) == 1
    assert ran(book_of(ledger, OTHER), 1) == 2
    assert [change.change for change in ledger.history(after=1)[0].changes] == ["delete", "put"]


def test_the_versions_are_in_the_order_of_their_numbers_beyond_a_million(ledger):
    for version in (999_999, 1_000_000):
        write_whole(
            ledger.checkpoint / "buckets" / "rule_sets" / f"{version:06d}.json",
            replace(first_rule_set(ONE), version=version).to_json(),
        )
    assert ledger.latest_rule_set().version == 1_000_000


def test_a_position_is_that_of_what_was_written_last(ledger):
    assert ledger.rules_position("t") is None
    ledger.keep_rules_position(4, "t", 0)
    assert ledger.rules_position("t") == 4
    ledger.keep_rule_set(first_rule_set(ONE), (), 0, 9, "t")
    assert ledger.rules_position("t") == 9
    ledger.keep_rules_position(2, "t", 1)
    assert ledger.rules_position("t") == 2


def test_a_position_counts_for_its_own_place_only(ledger):
    ledger.keep_rule_set(first_rule_set(ONE), (), 0, 9, "topic a")
    assert ledger.rules_position("topic b") is None
    ledger.keep_rules_position(3, "topic b", 1)
    assert ledger.rules_position("topic a") is None
    assert ledger.rules_position("topic b") == 3
