"""The event schema that is followed: what is taken, what is refused and said, and which batch has which one."""

import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.checkpoint.writer_schemas import WriterSchemas
from buckets.config.job import Job, load_job
from buckets.delta.whole_table import make_table
from buckets.errors import BucketsError
from buckets.events.decoded import WriterSchema
from buckets.events.protobuf.proto_schema import compiled_text
from buckets.events.schema import EventSchema
from buckets.feeds.rules.rule_book import RuleBook
from buckets.feeds.schema_book import SchemaBook, open_rules
from buckets.kafka.topics import pinned_fields
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS
from buckets.outputs.columns import ALERTS
from buckets.preflight.output_check import check_digits
from buckets.questions.listed_alerts import AskedJob
from tests.core.examples import until
from tests.laws import examples
from tests.registry import small_registry

SCHEMA: dict[str, Any] = {
    "name": "payment",
    "event_id": "id",
    "event_time": "at",
    "attributes": {"payer": "string", "kind": "string"},
    "measures": {"amount": {"scale": 2}},
}
SUM: dict[str, Any] = {
    "rule_id": "sum",
    "group_by": ["payer"],
    "features": {"total": {"function": "sum", "of": "amount", "window": "1h"}},
    "when": "total > 10",
}
BY_DEVICE = {
    "rule_id": "by-device",
    "group_by": ["device"],
    "aggregate": {"function": "count"},
    "window": {"length": "1h"},
    "limit": {"operator": ">=", "value": "2"},
}
PROTO = """syntax = "proto3";
message Payment {
  string id = 1; int64 at = 2; string payer = 3; string kind = 4; string amount = 5; string device = 6;
}
"""
_WRITTEN_S = itertools.count(1_700_000_000)


def attributes(**changes: str | None) -> dict[str, Any]:
    """The schema with other attributes; None takes one away."""
    changed = SCHEMA["attributes"] | changes
    return SCHEMA | {"attributes": {name: kind for name, kind in changed.items() if kind is not None}}


DEVICE = attributes(device="string") | {"version": 2}


class FollowedJob:
    """A job without Spark, whose batches begin and end as told."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder, self.conf = folder, folder / "conf.yaml"
        conf = {
            "source": {"kind": "json", "path": "source"},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"path": "tables"},
        }
        self.conf.write_text(yaml.safe_dump(conf | changes))
        self.write("schema.yaml", SCHEMA)
        self.write_rules(SUM)
        self.said: list[str] = []
        self.start()

    def write(self, name: str, content: Any) -> None:
        """Write a file that has settled long ago, at a time of its own."""
        path, written_s = self.folder / name, next(_WRITTEN_S)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        os.utime(path, (written_s, written_s))

    def write_rules(self, *rules: dict[str, Any]) -> None:
        self.write("rules.yaml", {"rules": list(rules)})

    def start(self) -> None:
        """Start it, as `prepare` and a query do."""
        job = load_job(self.conf)
        checkpoint = Checkpoint(job.checkpoint)
        checkpoint.job.open(CheckpointIdentity.of(job))
        self.batches, self.refused = checkpoint.batches, []
        self.book = RuleBook(checkpoint, open_rules(job), job.event_schema, job.settings.engine, self.refused.extend)
        self.schemas = SchemaBook(
            job, Terms.of(job, pinned_fields(job)), self.book, self.said.append, self._check_digits
        )
        self.schemas.start()
        self.book.start()

    def _check_digits(self, job: Job) -> None:
        check_digits(self.folder / "tables", job.event_schema)

    def begin(self, batch_id: int) -> Terms:
        """Begin a batch, or begin it again."""
        terms = self.batches.terms_for(batch_id, self.schemas.take(batch_id))
        self.rules = [rule.rule_id for rule in self.book.for_batch(batch_id).rules]
        return terms

    def run(self, batch_id: int) -> EventSchema:
        """Run a batch to its end; the schema that it had."""
        terms = self.begin(batch_id)
        self.book.done(batch_id, self.book.for_batch(batch_id), until(1000 * batch_id))
        return terms.event_schema

    @property
    def recorded(self) -> EventSchema:
        """The event schema with which the next start is compared."""
        return Checkpoint(load_job(self.conf).checkpoint).job.event_schema()


@pytest.fixture
def job(tmp_path) -> FollowedJob:
    return FollowedJob(tmp_path)


def read(written: dict[str, Any]) -> EventSchema:
    return EventSchema.model_validate(written)


def test_a_field_more_is_there_from_the_next_batch_on_and_rules_may_use_it(job):
    assert job.run(0) == read(SCHEMA)
    job.write("schema.yaml", DEVICE)
    job.write_rules(SUM, BY_DEVICE)
    assert job.run(1) == read(DEVICE) == job.recorded
    assert job.rules == ["sum", "by-device"]
    assert job.refused == []
    assert job.said == ["from batch 1 on: the event schema has a field more, device as a string attribute"]
    assert job.schemas.to_json() == {"name": "payment", "version": 2, "fault": None}


def test_a_field_that_is_renamed_while_the_job_runs_takes_its_rules_along(job, as_worded):
    job.run(0)
    assert job.book.in_force.version == 1
    renamed = attributes(payer=None, who="string") | {"aliases": {"who": ["payer"]}}
    job.write("schema.yaml", renamed)
    assert job.run(1) == read(renamed)
    (rule,) = job.book.in_force.rules
    assert (rule.group_by, rule.version, job.book.in_force.version) == (("who",), 1, 2)
    assert as_worded("\n".join(job.said))
    job.write_rules(SUM | {"group_by": ["who"]})
    assert job.run(2) == job.recorded
    assert (job.refused[1:], job.book.in_force.version) == ([], 2)
    job.start()
    job.run(3)
    assert (job.refused, job.book.in_force.version) == ([], 2)


def test_an_array_more_is_a_field_more_and_stays_what_it_is(job, as_worded):
    job.run(0)
    tagged = SCHEMA | {"arrays": {"tags[]": "string"}}
    job.write("schema.yaml", tagged)
    job.write_rules(SUM | {"where": "'new' IN tags[]"})
    assert job.run(1) == read(tagged) == job.recorded
    assert job.refused == []
    assert as_worded("\n".join(job.said))
    for batch_id, arrays in ((2, {"tags[]": "long"}), (3, {})):
        job.said.clear()
        job.write("schema.yaml", SCHEMA | {"arrays": arrays})
        assert job.run(batch_id) == read(tagged)
        assert as_worded("\n".join(job.said))


def test_a_rule_that_comes_before_its_field_is_refused_and_taken_when_the_field_is_there(job):
    job.run(0)
    job.write_rules(SUM, BY_DEVICE)
    job.run(1)
    assert job.rules == ["sum"]
    (refusal,) = job.refused
    assert "'device' is not an attribute of event schema 'payment'" in refusal.reason
    job.run(2)
    job.write("schema.yaml", DEVICE)
    job.run(3)
    assert job.rules == ["sum", "by-device"]
    assert job.refused == [refusal]


def test_rules_that_are_not_concerned_stay_as_they_are(job):
    job.run(0)
    version = job.book.in_force.version
    job.write("schema.yaml", DEVICE)
    job.run(1)
    assert job.book.in_force.version == version
    assert job.refused == []


REFUSED = {
    "a field is gone": attributes(kind=None),
    "a type is another one": attributes(kind="long"),
    "a scale is another one": SCHEMA | {"measures": {"amount": {"scale": 3}}},
    "an attribute is a measure": attributes(kind=None) | {"measures": {"amount": {"scale": 2}, "kind": {"scale": 0}}},
    "another id": SCHEMA | {"event_id": "kind", "attributes": {"payer": "string", "id": "string"}},
    "another time": SCHEMA | {"event_time": "then"},
    "another unit": SCHEMA | {"event_time": {"field": "at", "unit": "s"}},
    "a header": attributes(device="string") | {"origins": {"device": "headers.device"}},
    "a name that a rule has": attributes(total="string"),
    "another layout of files": SCHEMA | {"records": "[]"},
    "no schema": {"name": "payment"},
    "no YAML": "name: [",
}


@pytest.mark.parametrize("changed", REFUSED.values(), ids=list(REFUSED))
def test_what_a_start_would_not_go_on_with_is_said_once_and_changes_nothing(job, changed, as_worded):
    job.run(0)
    job.write("schema.yaml", changed)
    assert [job.run(1), job.run(2)] == [read(SCHEMA)] * 2
    (line,) = job.said
    assert as_worded(BucketsError(line))
    assert job.schemas.to_json()["fault"] is not None
    assert list(job.batches.all_terms()) == [0]
    job.write("schema.yaml", DEVICE)
    assert job.run(3) == read(DEVICE)
    assert job.schemas.to_json()["fault"] is None


def test_csv_may_be_written_in_another_way_from_a_batch_on(job):
    job.run(0)
    changed = SCHEMA | {"csv": {"delimiter": ";", "decimal": ","}}
    job.write("schema.yaml", changed)
    assert job.run(1) == read(changed)
    assert job.said == ["from batch 1 on: csv has changed; files that have been read already stay as they were read"]
    job.write("schema.yaml", SCHEMA)
    assert job.run(2) == read(SCHEMA)


def test_a_start_says_the_same_of_a_change_that_was_refused(job):
    job.run(0)
    job.write("schema.yaml", attributes(kind="long"))
    job.run(1)
    with pytest.raises(BucketsError) as refused:
        job.start()
    assert job.said == [f"the event schema stays as it is: {refused.value.message}"]


def test_a_rule_that_was_not_valid_before_either_does_not_keep_a_field_away(job):
    job.run(0)
    other = read(SCHEMA | {"attributes": {"payer": "string"}, "measures": {"fee": {"scale": 2}}})
    job.book.follow_schema(other)
    job.book.check_schema(other.model_copy(update={"attributes": {"payer": "string", "device": "string"}}))


OVER_ALERTS = {
    "rule_id": "over",
    "on": "alerts",
    "group_by": ["payer"],
    "aggregate": {"function": "count"},
    "window": {"length": "1h"},
    "limit": {"operator": ">=", "value": "2"},
}


def test_a_field_called_like_one_of_alerts_is_refused_where_a_rule_counts_alerts(job, as_worded):
    job.run(0)
    job.write_rules(SUM, OVER_ALERTS)
    job.run(1)
    assert job.rules == ["sum", "over"]
    job.write("schema.yaml", attributes(alert_rule="string"))
    assert job.run(2) == read(SCHEMA)
    assert as_worded(BucketsError(*job.said))


def test_a_measure_with_more_digits_than_the_tables_have_is_refused(job, as_worded):
    make_table(job.folder / "tables" / ALERTS, pa.schema([("value", pa.decimal128(38, 2 + AVERAGE_EXTRA_DIGITS))]))
    job.run(0)
    job.write("schema.yaml", SCHEMA | {"measures": {"amount": {"scale": 2}, "rate": {"scale": 5}}})
    assert job.run(1) == read(SCHEMA)
    assert as_worded(BucketsError(*job.said))


def test_numbers_in_protobuf_are_looked_up_when_the_schema_changes(tmp_path):
    with small_registry() as registry:
        registry.register("payments-value", PROTO, "PROTOBUF")
        kafka = {"bootstrap_servers": "localhost:1", "registry": {"url": registry.url}}
        job = FollowedJob(tmp_path, kafka=kafka, source={"kind": "kafka", "topic": "payments", "format": "protobuf"})
        first = job.begin(0).protobuf
        job.run(0)
        job.write("schema.yaml", DEVICE)
        second = job.begin(1).protobuf
    known = {"id": (1,), "at": (2,), "payer": (3,), "kind": (4,), "amount": (5,)}
    assert first.numbers == {"Payment": known}
    assert second.numbers == {"Payment": known | {"device": (6,)}}


def test_fields_in_protobuf_are_known_by_the_numbers_in_schemas_that_earlier_batches_met(tmp_path):
    """The event schema has the field before any schema of the registry does."""
    with small_registry() as registry:
        kafka = {"bootstrap_servers": "localhost:1", "registry": {"url": registry.url}}
        job = FollowedJob(tmp_path, kafka=kafka, source={"kind": "kafka", "topic": "payments", "format": "protobuf"})
    job.run(0)
    job.write("schema.yaml", DEVICE)
    assert job.begin(1).protobuf.numbers == {}
    schemas = WriterSchemas(tmp_path / "checkpoint")
    schemas.keep(4, WriterSchema("PROTOBUF", PROTO))
    schemas.keep(5, WriterSchema("PROTOBUF", "message"))
    schemas.keep(6, WriterSchema("AVRO", '"string"'))
    job.run(1)
    known = {"id": (1,), "at": (2,), "payer": (3,), "kind": (4,), "amount": (5,), "device": (6,)}
    schemas.keep(7, WriterSchema("PROTOBUF", PROTO.replace("device", "device_id")))
    assert [job.begin(batch).protobuf.numbers for batch in (2, 1)] == [{"Payment": known}, {}]
    job.run(2)
    assert job.begin(3).protobuf.numbers == {"Payment": known}
    assert list(job.batches.all_terms()) == [0, 1, 2]


def test_a_schema_file_of_protobuf_is_followed_and_pinned_with_the_batch(tmp_path, as_worded):
    older = PROTO.replace(" string device = 6;", "")
    source = {"kind": "kafka", "topic": "payments", "format": "protobuf", "schema_file": "payment.proto"}
    (tmp_path / "payment.proto").write_text(older)
    job = FollowedJob(tmp_path, kafka={"bootstrap_servers": "localhost:1"}, source=source)
    assert job.begin(0).protobuf.text == compiled_text(older)
    job.run(0)
    job.write("payment.proto", "message")
    assert job.begin(1).protobuf.text == compiled_text(older)
    job.run(1)
    job.write("payment.proto", PROTO)
    assert job.begin(2).protobuf.text == compiled_text(PROTO)
    job.run(2)
    job.write("schema.yaml", DEVICE)
    assert job.begin(3).protobuf.text == compiled_text(PROTO)
    job.run(3)
    assert [(batch, terms.protobuf.text) for batch, terms in job.batches.all_terms().items()] == [
        (0, compiled_text(older)),
        (2, compiled_text(PROTO)),
        (3, compiled_text(PROTO)),
    ]
    assert as_worded("\n".join(job.said))


def test_a_schema_file_of_avro_is_read_at_a_start_alone(tmp_path):
    written = {"type": "record", "name": "payment", "fields": [{"name": "id", "type": "string"}]}
    source = {"kind": "kafka", "topic": "payments", "format": "avro", "schema_file": "payment.avsc"}
    (tmp_path / "payment.avsc").write_text(json.dumps(written))
    job = FollowedJob(tmp_path, kafka={"bootstrap_servers": "localhost:1"}, source=source)
    job.run(0)
    job.write("payment.avsc", json.dumps(written | {"fields": []}))
    assert job.begin(1).avro_schema == json.dumps(written)
    assert job.said == []


QUIET = {
    "a comment": "# a comment\n" + yaml.safe_dump(SCHEMA, sort_keys=False),
    "the order of fields": attributes() | {"attributes": dict(reversed(SCHEMA["attributes"].items()))},
    "name and version": SCHEMA | {"name": "pay", "version": 7},
}


@pytest.mark.parametrize("changed", QUIET.values(), ids=list(QUIET))
def test_what_harms_nobody_is_taken_quietly(job, changed):
    job.run(0)
    job.write("schema.yaml", changed)
    written = read(yaml.safe_load(changed) if isinstance(changed, str) else changed)
    assert job.run(1).model_dump_json() == written.model_dump_json()
    assert job.said == []


def test_a_time_that_is_accepted_may_be_another_one_and_is_said(job):
    job.run(0)
    changed = SCHEMA | {"event_time": {"field": "at", "latest": "2030-01-01"}}
    job.write("schema.yaml", changed)
    assert job.run(1) == read(changed)
    (line,) = job.said
    assert line.startswith("from batch 1 on: event_time.latest has changed (2200-01-01")


def test_a_measure_may_be_rounded_from_the_next_batch_on(job):
    job.run(0)
    changed = SCHEMA | {"measures": {name: of | {"round": "half_even"} for name, of in SCHEMA["measures"].items()}}
    job.write("schema.yaml", changed)
    assert job.run(1) == read(changed)
    (line,) = job.said
    assert line.startswith("from batch 1 on: measures.amount.round has changed (none until now, half_even from now on)")


def test_a_file_that_is_away_for_a_moment_changes_nothing(job):
    job.run(0)
    (job.folder / "schema.yaml").unlink()
    assert job.run(1) == read(SCHEMA)
    job.write("schema.yaml", DEVICE)
    assert job.run(2) == read(DEVICE)


def test_those_who_ask_about_a_job_see_the_event_schema_of_now(job):
    asked = AskedJob(job.conf, load_job(job.conf))
    for written in (SCHEMA, "name: [", DEVICE):
        job.write("schema.yaml", written)
        assert asked.job.event_schema == read(DEVICE if written is DEVICE else SCHEMA)


# However it falls between batches

FIELDS = {"device": "string", "channel": "string", "risk": "long"}
Step = Callable[[FollowedJob], None]


@st.composite
def schemas(draw: st.DrawFn) -> tuple[bool, dict[str, Any]]:
    """A schema, and whether it lacks a field that every job has."""
    is_broken = draw(st.integers(0, 4)) == 0
    more = draw(st.sets(st.sampled_from(sorted(FIELDS))))
    own = {"payer": "string"} if is_broken else SCHEMA["attributes"]
    names = draw(st.permutations([*own, *more]))
    return is_broken, SCHEMA | {"attributes": {name: (own | FIELDS)[name] for name in names}}


STEPS = st.lists(st.one_of(schemas(), st.sampled_from(["begin", "run", "restart"])), max_size=12)


@settings(max_examples=examples(150))
@given(STEPS)
def test_each_batch_has_the_newest_schema_that_could_be_taken_when_it_began_also_when_it_is_begun_again(
    steps: Sequence[str | tuple[bool, dict[str, Any]]],
):
    """Files are written at any time, batches begin, end, or are cut off by a restart that begins them again."""
    with TemporaryDirectory() as folder:
        job = FollowedJob(Path(folder))
        batch_id, begun, now, written = 0, dict[int, str](), read(SCHEMA), read(SCHEMA)

        def can_follow(schema: EventSchema) -> bool:
            return now.roles.items() <= schema.roles.items()

        for step in [*steps, "run"]:
            if isinstance(step, tuple):
                written = read(step[1])
                job.write("schema.yaml", step[1])
            elif step == "restart":
                if can_follow(written):
                    job.start()
                    now = written
                else:
                    with pytest.raises(BucketsError, match="does not declare any more"):
                        job.start()
            else:
                if batch_id not in begun:
                    now = written if can_follow(written) else now
                    begun[batch_id] = now.model_dump_json()
                found = job.begin(batch_id)
                assert found.event_schema.model_dump_json() == begun[batch_id]
                if step == "run":
                    job.run(batch_id)
                    batch_id += 1
        recorded, terms = dict[int, str](), job.batches.all_terms()
        for number in begun:
            first = max(batch for batch in terms if batch <= number)
            recorded[number] = terms[first].event_schema.model_dump_json()
        assert recorded == begun
