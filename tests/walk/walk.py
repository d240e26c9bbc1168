"""A walk: a real job that is driven through the steps of a plan, and looked at after each of its lives."""

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from buckets.archive.history import archive_of
from buckets.backfill.fill_chunks import read_fills
from buckets.config.job import load_job
from buckets.kafka.local_broker import free_port
from buckets.stores.location import location
from tests.kafka.broker import TestBroker
from tests.spark.command import run_command, run_here
from tests.spark.job_folder import JobFolder
from tests.walk.calls import Calls
from tests.walk.catalogue import BY_ID, LEVELS, SCHEMA, STAFF, Written
from tests.walk.checker import Checker
from tests.walk.found import Difference
from tests.walk.life import Life
from tests.walk.live import LiveStream
from tests.walk.plan import Plan, Step, moment
from tests.walk.rare import RarePaths
from tests.walk.receiver import alert_receiver
from tests.walk.recorded import Records
from tests.walk.rule_feed import RuleFile, RulesOf, RuleTopic, put
from tests.walk.source import Files, Source, Topic
from tests.walk.stored import look_at_state

EXPLAINED = 2
"""So many alerts are explained, and as many evaluations without one."""
BY_TASKS = ("--master", "local[2]")
Entries = dict[str, tuple[int | None, str]]


class WalkFailed(AssertionError):
    """What came out is not what had to."""


class Walk:
    """The job of a walk, in a folder of its own."""

    def __init__(
        self,
        plan: Plan,
        root: Path,
        spark: SparkSession,
        say: Callable[[str], None],
        broker: TestBroker | None = None,
        store: Path | None = None,
    ) -> None:
        """Prepare a walk.

        Args:
            plan: its steps.
            root: the folder of the job.
            spark: a session that reads the job's state, while the job does not run.
            say: is told of each step.
            broker: of a plan with topics; payments and rules come through it.
            store: the folder of a bucket, in which the job has its checkpoint and its tables; the store keeps objects
                as files, and what came out is read there. None: in its own folder.
        """
        self._plan, self._root, self._spark, self._say = plan, root, spark, say
        self._dice = random.Random(plan.seed)
        self.rare = RarePaths(broker is not None)
        self._job, self._store = JobFolder(root), store
        if store is not None:
            self._job.checkpoint, self._job.tables = store / "checkpoint", store / "tables"
        self._job.write_schema(SCHEMA)
        for topic in ("payments", "rules", "rules_rejected", "rules_export") if broker is not None else ():
            broker.create(topic)
        self._life: Life | None = None
        self._lives = self._carried = 0
        self._configured: dict[str, Any] = {}
        self._fixed: dict[str, Any] = {"partitions": 2}
        """What is the same for a checkpoint."""
        if store is not None:
            self._fixed |= {"checkpoint": self._address("checkpoint")}
        self._broker = broker
        self._source: Source = Files(self._job) if broker is None else Topic(broker)
        self._rules: RulesOf = RuleFile(root) if broker is None else RuleTopic(broker)
        self._interrupted_in: str | None = None
        self._records = Records(self._job.checkpoint, self._source)
        self._checker = Checker(self._job.tables, self.rare)
        self._calls = Calls(random.Random(plan.seed))

    def run(self, most_steps: int | None = None) -> None:
        """Do the steps, and compare after each life.

        Args:
            most_steps: end after so many; None for all.

        Raises:
            WalkFailed: a difference; says the seed, the step and the first rows.
        """
        steps = [*self._plan.steps[:most_steps]]
        with alert_receiver(self._plan.seed) as self._receiver:
            try:
                for step in steps:
                    self._do(step)
                if self._life is not None:
                    self._do(Step(len(steps) + 1, "stop", settled=True))
                self._do(Step(len(steps) + 2, "look_at_webhook"))
            finally:
                if self._life is not None:
                    self._life.close()

    def _do(self, step: Step) -> None:
        self._say(str(step))
        try:
            if step.settled and self._life is not None:
                self._life.settle()
            getattr(self, f"_{step.kind}")(**step.what)
        except (Difference, AssertionError) as error:
            message = f"seed {self._plan.seed}, step {step}\n{error}\nthe folder: {self._root}"
            raise WalkFailed(message) from error

    def _configure(self, precision: dict[str, Any], state: dict[str, str] | None = None) -> None:
        self._configured = {"precision": precision, "state": state}
        lists = {name: {"kind": "file", "path": f"{name}.csv"} for name in (STAFF, LEVELS)}
        self._job.configure(
            source=self._source.settings,
            rules=self._rules.settings,
            kafka=None if self._broker is None else {"bootstrap_servers": self._broker.kafka.bootstrap_servers},
            lists=lists,
            archive={"path": self._address("archive")},
            **self._fixed,
            state=state,
            trigger={"interval": "50ms"},
            output={"path": self._address("tables"), "evaluations": True, "webhook": self._receiver.settings},
            engine={**self._plan.engine, "precision": precision},
            serve=None if self._broker is None else {"port": free_port(), "answer_within": "60s"},
        )

    def _address(self, name: str) -> str:
        """How the configuration names a folder of the job."""
        return name if self._store is None else f"s3://{self._store.name}/{name}"

    def _start(self) -> None:
        self._lives += 1
        arguments = ["run", str(self._job.conf)]
        log = self._root / f"life-{self._lives}.log"
        self._life = Life(arguments, self._job.tables, log, self._records, self._source)
        self._life.start()

    def _stop(self) -> None:
        assert self._life is not None
        self._life.stop()
        self._ended("stop")

    def _kill(self, when: str, files: list[list[str]]) -> None:
        assert self._life is not None
        for lines in files:
            self._add_file("plain", lines)
        found = self._life.kill(when, self._dice)
        self._say(f"    killed: {found}")
        self._ended(found)

    def _ended(self, how: str) -> None:
        """Compare what the batches of a life have left."""
        self._life = None
        before, self._interrupted_in = self._interrupted_in, how
        batches = self._records.new()
        self._checker.backfilled(self._records.backfilled())
        if batches:
            if before in ("written", "half_written"):
                self.rare.saw("a batch replayed after half a commit")
            elif before == "begun":
                self.rare.saw("a batch replayed that was only begun")
        self._checker.check(batches)
        if self._calls.compare(self._job.all_rows() if batches else {}):
            self.rare.saw("a call answered beside the job")
        self._say(f"    {len(batches)} batches compared")

    def _add_file(self, of: str, lines: list[str]) -> None:
        self._source.add(lines)

    def _write_rules(self, note: str, rules: list[Written]) -> None:
        self._rules.write(rules)

    def _write_schema(self, schema: Written) -> None:
        put(self._root / "schema.yaml", yaml.safe_dump(schema))

    def _write_list(self, name: str, entries: Entries) -> None:
        text = io.StringIO()
        lines = csv.writer(text)
        lines.writerow(["key", "until", "level"])
        for key, (until_ms, level) in entries.items():
            lines.writerow([key, "" if until_ms is None else moment(until_ms), level])
        put(self._root / f"{name}.csv", text.getvalue())

    def _clear_state(self, rule_id: str) -> None:
        assert isinstance(self._rules, RuleTopic)
        self._rules.clear(rule_id)
        self.rare.saw("a group cleared")

    def _outage(self) -> None:
        assert self._life is not None
        assert self._broker is not None
        self._life.outlive(self._broker.kill, self._broker.start)
        self.rare.saw("an outage waited out")

    def _serve(self, lines: list[str]) -> None:
        """Have payments answered in calls, while the job runs."""
        assert isinstance(self._source, Topic)
        log = self._root / f"serve-{self._lives}.log"
        self._calls.make(self._job.conf, log, self._job.checkpoint, self._source, lines)

    def _snooze(self, rule_id: str, key: str, until: str) -> None:
        what = ("--rule", rule_id, "--key", key, "--until", until, "--reason", "known", "--author", "w")
        self._run("snooze", *what, "--conf", self._job.conf)

    def _look_at_state(self) -> None:
        checkpoint = self._job.checkpoint
        if self._store is not None:
            checkpoint = location(self._address(checkpoint.name))
        look_at_state(self._spark, checkpoint, self.rare)

    def _look_at_webhook(self) -> None:
        if (self._job.tables / "alerts").exists():
            alert_ids = [row["alert_id"] for row in self._job.rows("alerts")]
            checkpoints = (self._store or self._root).glob("checkpoint*")
            self._receiver.check(alert_ids, list(checkpoints))
        if self._receiver.has_repeats:
            self.rare.saw("an alert delivered again")

    def _backfill(self, rule: Written) -> None:
        """Put a rule in force whose history is filled in while the job runs."""
        assert self._life is not None
        self._life.settle()
        asked = self._root / "asked.yaml"
        put(asked, yaml.safe_dump({"rules": [rule]}))
        self._run("rules", "apply", asked, "--conf", self._job.conf, "--backfill", "--reason", "of the past too")
        self._checker.expect_backfill(rule["rule_id"])

    def _fill_in(self, files: list[list[str]]) -> None:
        """Let payments come until history is filled in: only batches carry it, and only then state is carried over."""
        assert self._life is not None
        for lines in files:
            if not read_fills(self._job.checkpoint):
                return
            self._source.add(lines)
            self._life.settle()
        assert not read_fills(self._job.checkpoint), "history is still not filled in"

    def _carry_over(self, partitions: int) -> None:
        """Go on in a new checkpoint, with other partitions."""
        export, self._carried = self._root / f"export-{self._lives}", self._carried + 1
        self._run("state", "export", self._job.conf, "--to", export)
        name = f"checkpoint-{self._carried}"
        self._fixed |= {"checkpoint": self._address(name), "partitions": partitions}
        self._job.checkpoint = (self._store or self._root) / name
        self._configure(**self._configured)
        self._run("state", "import", export, "--conf", self._job.conf)
        self._records.go_on_in(self._job.checkpoint)
        self.rare.saw("a state carried over")

    def _replay(self) -> None:
        # What was filled in from the archive itself is no part of what arrived.
        for options in (["--evaluations", "--cuts", "recorded"], []):
            self._run("replay", self._job.conf, *options)
            self.rare.saw("an archive replayed")

    def _ask_tasks(self, rules: list[Written]) -> None:
        """Ask the archive by Spark's tasks: they answer as one process does."""
        self._run("replay", self._job.conf, "--evaluations", "--cuts", "recorded", *BY_TASKS)
        tried = self._root / "tried.yaml"
        put(tried, yaml.safe_dump({"rules": rules}))
        backtests, features = [], []
        for number, how in enumerate(((), BY_TASKS)):
            backtests.append(json.loads(self._run("backtest", tried, "--conf", self._job.conf, "--json", "-", *how)))
            out = self._root / f"features-{number}"
            self._run("features", tried, "--conf", self._job.conf, "--out", out, "--by", "day", *how)
            features.append(DeltaTable(out).to_pyarrow_table().sort_by("position"))
        assert backtests[0] == backtests[1]
        assert features[0] == features[1]
        assert len(features[0]) == archive_of(load_job(self._job.conf)).end()
        self.rare.saw("an archive asked by tasks")

    def _stream(self, rules: list[Written]) -> None:
        """Have `bs.stream` look at the same files under the rules as they are now, with a checkpoint of its own."""
        engine = {**self._plan.engine, "precision": self._configured["precision"]}
        lists = {name: self._root / f"{name}.csv" for name in (STAFF, LEVELS)}
        LiveStream(self._spark, self._job).run(rules, engine, lists)
        self.rare.saw("a stream stopped and started again")

    def _explain(self, sample: int) -> None:
        """Have some alerts explained, and some evaluations without one."""
        dice = random.Random(sample)
        alerts = [row["alert_id"] for row in self._job.rows("alerts") if row["warm"]]
        quiet = [row for row in self._job.rows("evaluations") if row["warm"] and not row["fired"]]
        quiet = [row for row in quiet if BY_ID[row["rule_id"]].written.get("on") != "alerts"]
        for alert_id in dice.sample(alerts, EXPLAINED):
            self._run("explain", self._job.conf, alert_id)
            self.rare.saw("an alert explained")
        for row in dice.sample(quiet, EXPLAINED):
            self._run("explain", self._job.conf, "--event", row["event_id"], "--rule", row["rule_id"])

    def _run(self, *arguments: str | Path) -> str:
        """Return what a command prints that has to succeed; one of the state has a Spark of its own."""
        done = run_command(*arguments) if arguments[0] == "state" else run_here(*arguments)
        said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.returncode == 0, f"buckets {' '.join(map(str, arguments))} ended with {done.returncode}: {said}"
        return done.stdout
