"""`buckets serve` beside a running job: what it answers in each case, and that the job says the same of the payment."""

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from buckets.checkpoint.batch_records import BatchRecords
from buckets.config.job import load_job
from buckets.kafka.local_broker import free_port
from buckets.spark.state_carry import export_state, import_state, plan_of
from tests.kafka.kafka_job import EVERY, KafkaJob, Row
from tests.kafka.schema_registry import schema_registry
from tests.kafka.served import Served, said_by_job, served_otherwise, wait_until
from tests.kafka.test_avro import ADDED, FIELDS, AvroJob
from tests.kafka.test_scoring import Running
from tests.kafka.test_serve_law import FEW, OFTEN, differences
from tests.own_certificate import own_certificate
from tests.spark.command import one_line, run_command
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark
TOKEN = "a token that is long enough for callers"
HISTORY = payments(40, seed=99)
AFTER_MS = 10**9
FIRST_WITHIN_S = 180
"""So long may the first batch take, which may have to wait for kernels to be compiled."""


def payment(number: int, at: int, payer: str = "ann", amount: str = "10.00", **more: Any) -> Row:
    return {"id": f"s{number}", "t": AFTER_MS + at, "payer": payer, "kind": "CARD", "amount": amount} | more


OFTEN_RUN = {"interval": "0ms"}


def own_port() -> dict[str, Any]:
    return {"port": free_port(), "answer_within": "30s"}


def served_job(broker, root, **changes: Any) -> KafkaJob:
    """A job of one topic that is served."""
    serve = own_port() | changes.pop("serve", {})
    return KafkaJob(broker, root, evaluations=True, trigger=OFTEN_RUN, serve=serve, **changes)


class Beside:
    """A job that runs in a thread, and a service of it."""

    def __init__(
        self, spark: Any, job: KafkaJob, folder: Any, stack: contextlib.ExitStack, history: list[Row] = HISTORY
    ) -> None:
        self.job, self._folder, self._stack = job, folder, stack
        self.running = stack.enter_context(Running(spark, job))
        job.send(history)
        self.running.wait_for(len(history), FIRST_WITHIN_S)
        self.served = self.serve()
        self.served.wait_until_ready()
        self._numbers = iter(range(1_000_000))

    def serve(self, name: str = "conf", tls: Any = None, token: str | None = None, **changes: Any) -> Served:
        """Start a service, which runs until the end of the module; with changes at a port of its own."""
        conf = self.job.conf
        if name != "conf":
            own = {"port": free_port()} | ({} if token is None else {"token": token})
            conf = served_otherwise(self.job, name, **own | changes)
        return self._stack.enter_context(Served(conf, self._folder / f"{name}.log", tls, token))

    def new(self, count: int, payer: str = "ann") -> list[Row]:
        """Payments that come after all others."""
        return [payment(number, 40 * number, payer) for number in (next(self._numbers) for _ in range(count))]

    @property
    def size(self) -> int:
        """How many messages the topic has."""
        return len(self.job.broker.read(self.job.topic))

    def assert_job_says(self, answers: list[Row]) -> None:
        """Wait for the job, and compare what it says."""
        size = self.size
        wait_until(lambda: self.running.events >= size, "the job has not come so far")
        compared, wrong = differences(self.job, answers)
        assert wrong == []
        assert compared == sum("decision" in answer for answer in answers)


@pytest.fixture(scope="module")
def beside(broker, tmp_path_factory, spark) -> Iterator[Beside]:
    folder = tmp_path_factory.mktemp("serve")
    job = served_job(broker, folder / "job")
    job.write_rules([*RULES, EVERY, FEW, OFTEN])
    with contextlib.ExitStack() as stack:
        yield Beside(spark, job, folder, stack)


def test_single_payments_and_several_in_one_call_are_answered_as_the_job_says_it(beside):
    single = beside.served.score(beside.new(1)[0])
    several = beside.served.score(beside.new(30))
    assert (single.status, several.status) == (200, 200)
    answers = [single.value, *several.value["answers"]]
    assert len(answers) == 31
    assert [answer["offset"] for answer in answers] == sorted(answer["offset"] for answer in answers)
    first = answers[0]
    assert set(first["decision"]) == {"fired", "severity", "score", "held"}
    assert first["decision"]["fired"] == [alert["rule_id"] for alert in first["alerts"]]
    assert first["as_of"] == {f"{beside.job.topic}[0]": first["offset"] + 1}
    assert any(answer["decision"]["held"] for answer in answers)
    beside.assert_job_says(answers)


def test_features_are_those_that_are_asked_for(beside):
    given = [beside.served.score(one, pattern).value for one, pattern in zip(beside.new(3), FEATURES, strict=True)]
    assert "features" not in given[0]
    assert set(given[1]["features"]) == {"few.spent", "few.cards", "few.of_kind"}
    assert {"few.spent", "every-payment.value"} < set(given[2]["features"])
    assert given[1]["features"]["few.cards"].keys() == {"value", "exact", "warm"}


FEATURES = (None, "few.*", "*")


def test_the_same_id_again_gets_the_first_answer_and_the_job_has_a_duplicate(beside):
    (one,) = beside.new(1)
    first, again = beside.served.score(one).value, beside.served.score(one).value
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert {name: again[name] for name in ("decision", "alerts", "offset", "outcome")} == {
        name: first[name] for name in ("decision", "alerts", "offset", "outcome")
    }
    asked = beside.served.check(one).value
    assert (asked["repeated"], asked["alerts"], asked["offset"]) == (True, first["alerts"], None)
    beside.assert_job_says([first, again])
    assert said_by_job(beside.job)[f"{beside.job.topic}[0]", first["offset"] + 1].outcome == "duplicate"


def test_a_duplicate_of_one_key_that_raises_an_alert_for_another_is_answered_with_that_alert(beside):
    (one,) = beside.new(1, "gina")
    first, other = beside.served.score(one).value, beside.served.score(one | {"payer": "hans"}).value
    assert not other["repeated"]
    assert first["alerts"]
    assert {alert["position"] for alert in other["alerts"]} == {other["offset"]}
    beside.assert_job_says([first, other])


def test_a_duplicate_gets_the_answer_of_its_own_event_whatever_else_had_its_id_since(beside):
    (one,) = beside.new(1, "ida")
    first = beside.served.score(one).value
    dead, later = beside.served.score(one | {"amount": "much"}), beside.served.score(one | {"t": one["t"] + 7})
    again = beside.served.score(one).value
    assert (dead.status, later.value["repeated"], again["repeated"]) == (422, False, True)
    assert again["offset"] == first["offset"]
    assert beside.served.check(one).value["alerts"] == first["alerts"]


def test_what_is_no_payment_is_answered_with_the_reason_of_the_job(beside):
    broken = [{"id": "b1", "t": "tomorrow", "payer": "ann"}, {"payer": "ann"}, {**payment(0, 0), "amount": "1.234"}]
    replies = [beside.served.score(each) for each in broken]
    assert [reply.status for reply in replies] == [422] * 3
    assert {reply.headers["content-type"] for reply in replies} == {"application/problem+json"}
    mixed = beside.served.score([broken[0], *beside.new(1)]).value["answers"]
    assert [each.get("outcome") for each in mixed] == ["dead_letter", "evaluated"]
    assert beside.served.check(broken[0]).status == 422
    beside.assert_job_says([*(reply.value for reply in replies), *mixed])


def test_a_check_changes_nothing_and_checks_at_once_do_not_see_each_other(beside):
    asked, size = [*beside.new(6), *beside.new(6, "bob"), *beside.new(6, "carl")], beside.size
    alone = [beside.served.check(each).value for each in asked]
    together = beside.served.check(asked).value["answers"]
    with ThreadPoolExecutor(6) as callers:
        at_once = [reply.value for reply in callers.map(beside.served.check, asked)]
    for others in (together, at_once):
        assert list(map(_said, others)) == list(map(_said, alone))
    assert beside.size == size
    one = asked[-1]
    scored = beside.served.score(one).value
    assert _said(scored)[2:] == _said(alone[-1])[2:]
    assert {each["offset"] for each in alone} == {None}
    beside.assert_job_says([scored])


def _said(answer: Row) -> tuple[Any, ...]:
    """What an answer says, without where the payment lies."""
    alerts = [
        {
            name: value
            for name, value in alert.items()
            if name not in ("source", "position", "ingested_at", "decided_at")
        }
        for alert in answer["alerts"]
    ]
    return answer["as_of"], answer["ruleset_version"], answer["decision"], answer["outcome"], alerts, answer["features"]


def test_two_services_say_the_same_and_one_that_is_killed_in_a_call_leaves_the_payment_to_the_job(beside):
    other = beside.serve("other")
    other.wait_until_ready()
    asked = beside.new(20, "dora")
    scored = [service.score(one).value for service, one in zip([beside.served, other] * 10, asked, strict=True)]
    wait_until(lambda: other.metric("lag") == beside.served.metric("lag") == 0, "they are not at the end")
    later = beside.new(5, "dora")
    assert list(map(_said, other.check(later).value["answers"])) == list(
        map(_said, beside.served.check(later).value["answers"])
    )
    size = beside.size
    calls = [threading.Thread(target=_call_and_lose, args=(other, one)) for one in later]
    for call in calls:
        call.start()
    wait_until(lambda: beside.size > size, "nothing was written")
    other.kill_all()
    for call in calls:
        call.join()
    beside.assert_job_says(scored)
    assert beside.size > size
    assert said_by_job(beside.job).keys() >= {(f"{beside.job.topic}[0]", at) for at in range(size, beside.size)}


def _call_and_lose(served: Served, one: Row) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        served.score(one)


def test_what_comes_too_late_is_undecided_and_counts_and_what_is_too_much_is_refused_and_not_written(beside):
    hasty = beside.serve("hasty", answer_within="1ms", undecided="allow", most_waiting=3)
    hasty.wait_until_ready()
    (one,), size = beside.new(1, "eve"), beside.size
    reply = hasty.score(one)
    assert reply.status == 200
    assert (reply.value["outcome"], reply.value["decision"]["undecided"]) == ("undecided", "allow")
    wait_until(lambda: beside.size == size + 1, "it was not written")
    wait_until(lambda: beside.served.check(one).value["outcome"] == "duplicate", "it does not count")
    wait_until(lambda: hasty.metric("waiting") == 0, "it waits still")
    refused = hasty.score(beside.new(4, "eve"))
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert "\n" not in refused.value["detail"]
    assert beside.size == size + 1
    assert hasty.metric("payments", '_total{what="undecided"}') == 1
    assert hasty.metric("payments", '_total{what="refused"}') == 4


def test_a_payment_that_is_larger_than_the_topic_takes_is_refused_for_good(beside):
    size = beside.size
    (one,) = beside.new(1, "x" * 1_010_000)
    reply = beside.served.score(one)
    assert reply.status == 413
    assert beside.job.topic in reply.value["detail"]
    assert "\n" not in reply.value["detail"]
    assert beside.size == size


def test_one_that_is_ended_while_it_reads_the_state_leaves_nothing_behind(beside, tmp_path):
    conf = served_otherwise(beside.job, "brief", port=free_port())
    with Served(conf, tmp_path / "brief.log") as brief:
        brief.wait_until(lambda: len(brief.processes()) > 2)  # It, what reads the state, and Spark
        assert brief.interrupt() == 0
        wait_until(lambda: brief.processes() == [], "something is left")
        assert brief.stderr.splitlines()[1:] == []


def test_a_token_a_certificate_and_those_of_callers(beside, tmp_path):
    _, ca_file = own_certificate(tmp_path)
    both = str(tmp_path / "server.pem")
    files = {"certificate_file": both, "key_file": both}
    trusting = ssl.create_default_context(cafile=str(ca_file))
    known = ssl.create_default_context(cafile=str(ca_file))
    known.load_cert_chain(both)
    named = beside.serve("token", trusting, token=TOKEN, **files)
    callers = beside.serve("callers", known, ca_file=str(ca_file), **files)
    strangers = Served(beside.job.root / "token.yaml", tmp_path / "unused", trusting, "another")
    unknown = Served(beside.job.root / "callers.yaml", tmp_path / "unused", trusting)
    for service in (named, callers):
        service.wait_until_ready()
        assert service.check(beside.new(1)[0]).value["outcome"] == "evaluated"
    refused = strangers.check(beside.new(1)[0])
    assert (refused.status, strangers.ask("/metrics").status, strangers.ask("/healthz").status) == (401, 401, 200)
    assert TOKEN not in refused.text
    with pytest.raises(OSError):  # noqa: PT011 - of TLS, or of a connection that is ended
        unknown.check(beside.new(1)[0])


def test_payments_of_two_partitions_go_where_their_key_says_and_without_one_it_does_not_start(spark, broker, tmp_path):
    rules = [RULES[0], EVERY, {**FEW, "features": {**FEW["features"], "of_kind": BY_PAYER}}]
    job = served_job(broker, tmp_path / "job", partitions=2, serve={"key": "payer"}, tasks=2)
    job.write_rules(rules)
    nothing = served_otherwise(job, "nothing", key=None)
    assert one_line(run_command("serve", nothing)).startswith(f"topic {job.topic} has 2 partitions, and nothing says")
    with contextlib.ExitStack() as stack:
        # The tests' own producer sends keys elsewhere than other clients do.
        beside = Beside(spark, job, tmp_path, stack, [payment(3_000, -1_000, "nobody")])
        payers = ["ann", "frank", "bob", "gina", "hugo"]
        answers = beside.served.score([payment(2_000 + at, 0, payer) for at, payer in enumerate(payers)]).value[
            "answers"
        ]
        goes_to = {payer: answer["partition"] for payer, answer in zip(payers, answers, strict=True)}
        for number in range(12):
            together = [payment(5 * number + at, 100 * number, payer) for at, payer in enumerate(payers)]
            other = payers[number % 5]
            sent = json.dumps(payment(1_000 + number, 100 * number + 50, other))
            broker.produce(job.topic, [sent], [other], partition=goes_to[other])
            answers += beside.served.score(together).value["answers"]
        assert {answer["partition"] for answer in answers} == {0, 1}
        assert set(answers[-1]["as_of"]) == {f"{job.topic}[0]", f"{job.topic}[1]"}
        by_key = {message.key(): message.partition() for message in broker.read(job.topic)}
        assert len(by_key) == len({(message.key(), message.partition()) for message in broker.read(job.topic)})
        beside.assert_job_says(answers)


BY_PAYER = {"function": "avg", "of": "amount", "window": "400ms"}


def test_while_the_broker_is_away_a_score_is_refused_and_a_check_is_answered_and_then_all_goes_on(
    spark, own_broker, tmp_path
):
    broker = own_broker()
    job = served_job(broker, tmp_path / "job", kafka={"bootstrap_servers": broker.kafka.bootstrap_servers})
    with contextlib.ExitStack() as stack:
        beside = Beside(spark, job, tmp_path, stack)
        before = [beside.served.score(one).value for one in beside.new(5)]
        (asked,) = beside.new(1)
        expected = beside.served.check(asked).value
        broker.stop()
        beside.served.wait_until(lambda: beside.served.not_ready is not None, 0.1)
        assert _said(beside.served.check(asked).value) == _said(expected)
        reply = beside.served.score(asked)
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "\n" not in reply.value["detail"]
        broker.start()
        beside.served.wait_until_ready()
        after = [beside.served.score(one).value for one in beside.new(5)]
        beside.assert_job_says([*before, *after])
        ids = [json.loads(message.value())["id"] for message in broker.read(job.topic)]
        assert asked["id"] not in ids


ASKED = {
    "rule_id": "asked",
    "group_by": ["payer", "kind"],
    "features": {"all": {"function": "sum", "of": "amount", "window": "1h"}},
    "when": "all > 0",
}


@pytest.mark.nightly
def test_started_before_the_job_it_waits_and_history_that_is_filled_in_is_there_with_the_job(
    spark, broker, tmp_path, buckets
):
    job = served_job(broker, tmp_path / "job", archive={"path": "archive"})
    job.send(payments(30))
    with Served(job.conf, tmp_path / "log") as served:
        served.wait_until(lambda: "no batch" in (served.not_ready or ""), 0.1)
        refused = served.check(payment(0, 0))
        assert (refused.status, refused.value["detail"]) == (503, served.not_ready)
        with Running(spark, job) as running:
            served.wait_until_ready()
            answers = [served.score(payment(number, 100 * number)).value for number in range(10)]
            asked = tmp_path / "asked.yaml"
            asked.write_text(json.dumps({"rules": [ASKED]}))
            applied = buckets("rules", "apply", asked, "--conf", job.conf, "--backfill")
            assert applied.code == 0, applied.err
            number = 10
            while answers[-1].get("features", {}).get("asked.all", {}).get("warm") is not True:
                reply = served.score(payment(number, 100 * number))
                assert reply.status == 200, reply.text
                answers += [reply.value] if reply.value["outcome"] != "undecided" else []
                number += 1
                assert number < 2_000, "the history is not filled in"
            answers += [served.score(payment(number + more, 100 * (number + more))).value for more in range(5)]
            size = len(broker.read(job.topic))
            running.wait_for(size)
            compared, wrong = differences(job, answers)
            assert wrong == []
            assert compared > 10
            said = said_by_job(job)[f"{job.topic}[0]", answers[-1]["offset"]]
            assert said.features["asked.all"][1:] == (True, True)


@pytest.mark.nightly
@pytest.mark.parametrize("sent", [3, 80])
def test_a_topic_that_was_created_again_is_read_from_its_beginning_as_the_job_does_it(spark, broker, tmp_path, sent):
    """Whether the new one is shorter or longer than the one before, by the same service."""
    job = served_job(broker, tmp_path / "job")
    with Served(job.conf, tmp_path / "log") as served:
        with Running(spark, job) as running:
            job.send(HISTORY)
            served.wait_until_ready()
            for number in range(5):
                assert served.score(payment(number, number)).value["outcome"] == "evaluated"
            running.wait_for(len(HISTORY) + 5)
        broker.delete(job.topic)
        broker.create(job.topic, 1)
        job.send([payment(500 + number, 10_000 + number) for number in range(sent)])
        with Running(spark, job, new_topic=lambda line: None) as running:
            running.wait_for(sent)
            served.wait_for_batch(BatchRecords(job.checkpoint).newest())
            served.wait_until_ready()
            again = [served.score(payment(600 + number, 20_000 + number)).value for number in range(5)]
            running.wait_for(sent + 5)
    said = said_by_job(job)
    for number, answer in enumerate(again):
        assert answer["offset"] == sent + number
        expected = said[f"{job.topic}#2[0]", answer["offset"]]
        assert {each["alert_id"] for each in answer["alerts"]} == expected.alerts.keys() != set()
        assert {each["source"] for each in answer["alerts"]} == {f"{job.topic}#2[0]"}


@pytest.mark.nightly
def test_a_job_that_begins_with_a_new_checkpoint_is_followed_by_its_own_batches_and_rules(spark, broker, tmp_path):
    job = served_job(broker, tmp_path / "job")
    job.write_rules(RULES)
    with Served(job.conf, tmp_path / "log") as served:
        with Running(spark, job) as running:
            job.send(HISTORY)
            served.wait_until_ready()
            for number in range(12):
                assert served.score(payment(number, number)).value["outcome"] == "evaluated"
                running.wait_for(len(HISTORY) + number + 1)
            served.wait_for_batch(12)
        job.checkpoint.rename(tmp_path / "old")
        wait_until(lambda: served.not_ready is not None, "the other checkpoint is not noticed")
        job.write_rules([EVERY])
        with Running(spark, job) as running:
            running.wait_for(len(HISTORY) + 12)
            served.wait_until_ready()
            after = [served.score(payment(100 + number, 1_000 + number)).value for number in range(5)]
            running.wait_for(len(HISTORY) + 17)
    assert {alert["rule_id"] for answer in after for alert in answer["alerts"]} == {EVERY["rule_id"]}


@pytest.mark.nightly
def test_state_that_was_carried_into_other_shards_is_served(spark, broker, tmp_path):
    job = served_job(broker, tmp_path / "job")
    job.send(HISTORY)
    with Running(spark, job) as running:
        running.wait_for(len(HISTORY))
    export_state(spark, job.checkpoint, tmp_path / "export", lambda line: None)
    settings = yaml.safe_load(job.conf.read_text())
    settings |= {"checkpoint": "second", "engine": settings["engine"] | {"shards": 9}}
    job.conf.write_text(yaml.safe_dump(settings))
    job.checkpoint = job.root / "second"
    wider = load_job(job.conf)
    import_state(spark, tmp_path / "export", wider, plan_of(tmp_path / "export", wider), lambda line: None)
    with Running(spark, job) as running, Served(job.conf, tmp_path / "log") as served:
        job.send([payment(-1, 0)])
        served.wait_until_ready()
        answers = [served.score(payment(number, 40 * number)).value for number in range(30)]
        running.wait_for(31)
    compared, wrong = differences(job, answers)
    assert (compared, wrong) == (30, [])


def test_payments_in_avro_are_answered(spark, broker, tmp_path):
    with (
        schema_registry() as registry,
        AvroJob(broker, tmp_path / "job", registry, trigger=OFTEN_RUN, serve=own_port()) as job,
    ):
        events = payments(60)
        job.send(events[:20])
        with Running(spark, job) as running, Served(job.conf, tmp_path / "log") as served:
            served.wait_until_ready()
            answers = []
            # The schema of the later ones is not known to the job yet.
            for value in [*job.values(events[20:40], FIELDS), *job.values(events[40:], ADDED)]:
                reply = served.ask("/v1/score?features=*", value, content_type="application/octet-stream")
                answers.append(reply.value)
            assert served.ask("/v1/score", b"\0no", content_type="application/octet-stream").status == 422
            running.wait_for(61)
        compared, wrong = differences(job, answers)
        assert (compared, wrong) == (40, [])
