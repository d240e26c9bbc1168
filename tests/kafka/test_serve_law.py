"""The law of `buckets serve`: what a call is answered is what the job says of that payment.

Calls and messages of others come in any interleaving; rules and a list change; serve and the job are killed and
started again in the middle.
"""

import contextlib
import http.client
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.list_versions import ListVersions
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.kafka.local_broker import free_port
from tests.kafka.kafka_job import EVERY, KafkaJob, Row
from tests.kafka.served import LOOK_EVERY_S, Served, said_by_job, said_in_answer
from tests.spark.command import RunningCommand
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark
FEW = {
    "rule_id": "few",
    "group_by": ["payer"],
    "cooldown": "300ms",
    "features": {
        "spent": {"function": "sum", "of": "amount", "window": "700ms"},
        "cards": {"function": "count", "window": "1s", "where": "kind = 'CARD'"},
        "of_kind": {"function": "avg", "of": "amount", "window": "400ms", "group_by": ["kind"]},
    },
    "when": "spent > 20 AND cards >= 1",
}
AGAIN = {**RULES[0], "rule_id": "again", "reset_on_alert": True, "window": {"length": "2s"}}
OFTEN = {
    "rule_id": "often",
    "on": "alerts",
    "group_by": ["payer"],
    "features": {"alerts": {"function": "count", "window": "600ms"}},
    "when": "alerts >= 3",
}
LISTED = {
    "rule_id": "listed",
    "group_by": ["payer"],
    "where": "payer IN LIST watched",
    "features": {"payments": {"function": "count", "window": "1s"}},
    "when": "payments >= 2",
}
USUAL = [*RULES, EVERY, FEW, LISTED, AGAIN]
OTHERS = [
    [*USUAL, OFTEN],
    [{**RULES[0], "limit": {"operator": ">", "value": "30"}}, *RULES[1:], EVERY, {**FEW, "cooldown": "2s"}, LISTED],
    [*RULES, EVERY, LISTED, {**FEW, "rule_id": "more", "when": "spent > 50"}],
    USUAL,
]
LISTS = ["key\nann\n", "key\nbob\nzoë\n", "key\nnobody\n", "key\nann\nbob\n"]


class Story:
    """A job and a service that are driven by steps, and the answers that there were."""

    def __init__(self, job: KafkaJob, folder: Path, dice: random.Random) -> None:
        self.job, self.folder, self.dice = job, folder, dice
        self.answers: list[Row] = []
        self.told: list[str] = []
        self.undecided = self.refused = self.lost = self.starts = 0
        self._events = iter(payments(20_000, dice.randrange(1_000)))
        self._lock = threading.Lock()
        self._rules = self._lists = 0
        self._running = contextlib.ExitStack()
        self.run: RunningCommand
        self.served: Served

    def __enter__(self) -> "Story":
        self.start_job()
        self.start_serve()
        self.served.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _log(self, name: str) -> Path:
        self.starts += 1
        return self.folder / f"{self.starts}-{name}.log"

    def start_job(self) -> None:
        self.run = self._running.enter_context(RunningCommand("run", self.job.conf, log=self._log("run")))

    def start_serve(self) -> None:
        self.served = self._running.enter_context(Served(self.job.conf, self._log("serve")))

    def next_payments(self, count: int) -> list[Row]:
        with self._lock:
            return [next(self._events) for _ in range(count)]

    # The steps

    def call(self) -> None:
        """One payment after the other."""
        for payment in self.next_payments(self.dice.randrange(1, 9)):
            self._note([self.served.score(payment)])

    def call_about_several(self) -> None:
        reply = self.served.score(self.next_payments(self.dice.randrange(2, 30)))
        assert reply.status == 200, reply.text
        for each in reply.value["answers"]:
            self._note_one(200 if "decision" in each else each["status"], each)

    def call_at_once(self) -> None:
        """Several callers at the same time."""
        asked, replies = [self.next_payments(3) for _ in range(4)], []
        callers = [
            threading.Thread(target=lambda three=three: replies.extend(self.served.score(each) for each in three))
            for three in asked
        ]
        for each in callers:
            each.start()
        for each in callers:
            each.join()
        assert len(replies) == 12
        self._note(replies)

    def send(self) -> None:
        """What others write, some of it no payment."""
        self.job.send(self.next_payments(self.dice.randrange(1, 40)))
        if self.dice.random() < 0.3:
            self.job.broker.produce(self.job.topic, ["{", None, '{"id": "x"}'], ["ann"] * 3)

    def check(self) -> None:
        """Ask, which changes nothing."""
        reply = self.served.check(self.next_payments(self.dice.randrange(1, 6)))
        assert reply.status in (200, 503), reply.text

    def change_rules(self) -> None:
        self.job.write_rules(OTHERS[self._rules % len(OTHERS)])
        self._rules += 1
        before = newest_rules(self.job)
        # The next calls are made in the midst of it; which version they had is in their answers.
        if self.dice.random() < 0.5:
            self._send_until(lambda: newest_rules(self.job) > before)

    def change_list(self) -> None:
        """What the job writes does not name the versions of lists, so nobody calls before both know the new one.

        Nor is anything left of which an answer was given, and that the job is yet to begin with.
        """
        self.run.wait_until(lambda: self.served.not_ready is None and self._is_settled(), LOOK_EVERY_S)
        before = newest_list(self.job)
        write_list(self.job, LISTS[self._lists % len(LISTS)])
        self._lists += 1
        self._send_until(lambda: newest_list(self.job) > before)
        number = newest_list(self.job)
        self._send_until(lambda: BatchRecords(self.job.checkpoint).latest().lists.get("watched", 0) >= number)
        batch = BatchRecords(self.job.checkpoint).newest()
        self._send_until(lambda: self.served.not_ready is None and self.served.metric("batch") >= batch)

    def _is_settled(self) -> bool:
        return self.served.metric("unsettled") == 0

    def kill_serve(self) -> None:
        """In the middle of a call."""
        asked = self.next_payments(3)
        caller = threading.Thread(target=self._call_and_lose, args=(asked,))
        caller.start()
        self.served.kill_all()
        caller.join()
        self.start_serve()
        if self.dice.random() < 0.7:
            self.served.wait_until_ready()
        else:
            self.served.wait_until(lambda: "Errno" not in (self.served.not_ready or ""), LOOK_EVERY_S)

    def kill_job(self) -> None:
        self.run.kill_all()
        self.call()
        self.start_job()

    def _call_and_lose(self, asked: list[Row]) -> None:
        for payment in asked:
            try:
                self._note([self.served.score(payment)])
            except (OSError, http.client.HTTPException):
                self.lost += 1

    def _send_until(self, reached) -> None:
        def sent_and_reached() -> bool:
            self.job.send(self.next_payments(1))
            return reached()

        self.run.wait_until(sent_and_reached, 2 * LOOK_EVERY_S)

    def _note(self, replies) -> None:
        for reply in replies:
            self._note_one(reply.status, reply.value)

    def _note_one(self, status: int, answer: Row) -> None:
        if status == 503:
            self.refused += 1
        elif answer["outcome"] == "undecided":
            self.undecided += 1
        else:
            assert status == (422 if answer["outcome"] == "dead_letter" else 200), answer
            self.answers.append(answer)

    def end(self) -> None:
        """Let the job come to the end of its topic."""
        last = {"id": "last", "t": 10**12, "payer": "ann", "kind": "CARD", "amount": "1.00"}
        self.job.send([last])
        at = self.job.broker.read(self.job.topic)[-1].offset()
        self.run.wait_until(lambda: any(each["position"] == at for each in self.job.messages("alerts")), LOOK_EVERY_S)


def newest_rules(job: KafkaJob) -> int:
    latest = RuleVersions(job.checkpoint).latest_rule_set()
    return 0 if latest is None else latest.version


def newest_list(job: KafkaJob) -> int:
    latest = ListVersions(job.checkpoint).latest("watched")
    return 0 if latest is None else latest.number


def write_list(job: KafkaJob, text: str) -> None:
    hidden = job.root / ".watched.csv"
    hidden.write_text(text)
    hidden.replace(job.root / "watched.csv")


@contextlib.contextmanager
def load(story: Story) -> Iterator[None]:
    """Others write all the time."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            story.job.send(story.next_payments(2))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def differences(job: KafkaJob, answers: list[Row]) -> tuple[int, list[str]]:
    """How many answers were compared, and those that are not what the job says."""
    said, compared, wrong = said_by_job(job), 0, []
    for answer in answers:
        if "decision" not in answer:
            place = (f"{job.topic}[{answer['partition']}]", answer["offset"])
            if (said[place].outcome, said[place].reason) != ("dead_letter", answer["detail"]):
                wrong.append(f"{answer} {said[place]}")
            continue
        place, found = said_in_answer(answer, job.topic)
        expected = said.get(place)
        assert expected is not None, answer
        if expected.version is not None and expected.version != found.version:
            continue
        compared += 1
        held = sorted(answer["decision"]["held"]), sorted(each["rule_id"] for each in expected.held.values())
        # Of a rule over alerts there are no features.
        features = {name: of for name, of in expected.features.items() if not name.startswith("often.")}
        expected = replace(expected, version=found.version, reason=None, held={}, features=features)
        if found != expected or held[0] != held[1]:
            wrong.append(f"{place}: {shown_difference(vars(found), vars(expected))} {held}")
    return compared, wrong


def shown_difference(found: Row, expected: Row) -> str:
    """What is different, part by part."""
    parts = []
    for name in found.keys() | expected.keys():
        one, other = found.get(name), expected.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and one != other:
            parts.append(f"{name}: {{{shown_difference(one, other)}}}")
        elif one != other:
            parts.append(f"{name}: {one} and not {other}")
    return ", ".join(parts)


def tell(job: KafkaJob, folder: Path, seed: int, length: int, kills: int) -> Story:
    """Drive a story to its end; kills are somewhere in it."""
    dice = random.Random(seed)
    write_list(job, LISTS[-1])
    job.write_rules(USUAL)
    job.send(payments(30, seed=99))
    steps = dice.choices(
        ["call", "call_about_several", "call_at_once", "send", "check", "change_rules", "change_list"],
        [6, 4, 2, 4, 2, 1, 0.5],
        k=length,
    )
    for kill in ["kill_serve", "kill_job"] * kills:
        steps.insert(dice.randrange(len(steps)), kill)
    with Story(job, folder, dice) as story:
        for number, step in enumerate(steps):
            with load(story) if dice.random() < 0.4 and step != "change_list" else contextlib.nullcontext():
                getattr(story, step)()
            story.told.append(f"{number}: {step}, {len(story.answers)} answers")
        story.served.wait_until_ready()
        for _ in range(10):
            story.call()
        story.end()
        assert story.run.interrupt() == 0
    return story


def job_of_story(broker, root: Path) -> KafkaJob:
    return KafkaJob(
        broker,
        root,
        evaluations=True,
        trigger={"interval": "0ms"},
        lists={"watched": {"kind": "file", "path": "watched.csv"}},
        serve={"port": free_port(), "answer_within": "10s"},
    )


@pytest.mark.parametrize(
    ("seed", "steps", "kills"),
    [(1, 24, 1), *(pytest.param(seed, 60, 2, marks=pytest.mark.nightly) for seed in range(2, 8))],
)
def test_an_answer_is_what_the_job_says_whatever_comes_in_between(broker, tmp_path, seed, steps, kills):
    job = job_of_story(broker, tmp_path / "job")
    story = tell(job, tmp_path, seed, steps, kills)
    compared, wrong = differences(job, story.answers)
    assert wrong == [], "\n".join([*story.told, *wrong[:5]])
    assert compared > len(story.answers) // 2, story.told
    assert story.undecided + story.lost < len(story.answers) // 4
