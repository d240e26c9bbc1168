"""A real Apache Kafka on this machine: one node, for trying things out and for tests.

It is both broker and controller (KRaft). Everything it has is in one folder: the data, `server.properties`,
`broker.log`, and `broker.pid` while it runs. The process has a session of its own and outlives the one that started it.
"""

import base64
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from buckets.config.kafka import KafkaSettings, SecuritySettings
from buckets.errors import BucketsError
from buckets.java.jars import broker_jar_paths
from buckets.java.java import find_java, run_java
from buckets.kafka.faults import Broker, client_settings, consumer_settings, explain, opened, read_offsets
from buckets.kafka.server_properties import (
    HOST,
    BrokerProcess,
    Keystore,
    check_port,
    client_address,
    client_protocol,
    controller_port,
    free_port,
    read_properties,
    server_properties,
    why_taken,
    write_properties,
)

START_WITHIN_S = 120.0
FORMAT_WITHIN_S = 120.0
# Runs a command in the background, with its output in $1, its pid in $2.
_IN_BACKGROUND = 'log=$1 pid=$2; shift 2; "$@" </dev/null >>"$log" 2>&1 & echo $! >"$pid"'
_EXCEPTION = re.compile(r"^(?P<caused>Caused by: )?[\w.$]+(?:Exception|Error): (?P<text>.+)$", re.MULTILINE)
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)


@dataclass(frozen=True)
class BrokerStatus:
    """Whether a broker runs."""

    pid: int | None  # its process; None if it does not run
    address: str | None  # `host:port`, even if it has been stopped; None if none was ever started in the folder

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.pid is not None


class LocalBroker:
    """One Kafka node in a folder."""

    def __init__(
        self,
        folder: Path,
        port: int = 9092,
        users: Mapping[str, str] | None = None,
        keystore: Keystore | None = None,
    ) -> None:
        """Choose the folder; nothing is started or written yet.

        Args:
            folder: where it keeps everything.
            port: where clients reach it, from this machine only.
            users: passwords by user; with them, clients need a login (PLAIN).
            keystore: its certificate; with it, clients need TLS.
        """
        self.folder = folder.absolute()
        self.port = port
        self._users = dict(users or {})
        self._keystore = keystore
        self._properties = self.folder / "server.properties"
        self._process = BrokerProcess(self.folder)
        self.log = self.folder / "broker.log"

    @property
    def kafka(self) -> KafkaSettings:
        """How clients reach it, as the first user if there are users."""
        security: dict[str, str | SecretStr] = {"protocol": client_protocol(self._users, self._keystore)}
        for username, password in self._users.items():
            security |= {"mechanism": "PLAIN", "username": username, "password": SecretStr(password)}
            break
        if self._keystore is not None:
            security["ca_file"] = str(self._keystore.ca_file)
        return KafkaSettings(
            bootstrap_servers=f"{HOST}:{self.port}", security=SecuritySettings.model_validate(security)
        )

    def status(self) -> BrokerStatus:
        """Return whether it runs, and where."""
        return BrokerStatus(self._process.pid(), self._written_address())

    def start(self, say: Callable[[str], None] | None = None) -> bool:
        """Start it, and wait until it answers.

        Returns:
            Whether it was started; False if it runs already.

        Raises:
            BucketsError: it runs at another port, the port is taken, the folder is not a broker's, there is no Java or
                no jars, or Kafka does not start.
        """
        pid = self._process.pid()
        if pid is not None:
            self._check_address(pid)
            return False
        check_port(self.port)
        self._check_folder()
        java = self._java(broker_jar_paths(say) if say else broker_jar_paths())
        self._write_properties()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java)
        written = self.log.stat().st_size if self.log.exists() else 0
        command = [*java, "kafka.Kafka", self._properties.name]
        try:
            subprocess.run(
                ["sh", "-c", _IN_BACKGROUND, "sh", self.log.name, self._process.pid_file.name, *command],
                cwd=self.folder,
                start_new_session=True,
                check=True,
            )
            self._wait_until_it_answers(written)
        except BaseException:
            self.kill()
            raise
        return True

    def stop(self) -> bool:
        """Stop it in good order; kill it if that takes too long.

        Returns:
            Whether it ran.
        """
        return self._process.stop()

    def kill(self) -> bool:
        """Kill it, as a crash would.

        Returns:
            Whether it ran.

        Raises:
            BucketsError: its process does not end.
        """
        return self._process.kill()

    def _java(self, jars: Sequence[Path]) -> list[str]:
        """Return the command up to the class to run."""
        # What native libraries unpack stays in the folder, even if the broker is killed.
        options = [*_JAVA_OPTIONS, f"-Djava.io.tmpdir={self.folder / 'tmp'}", self._process.mark]
        return [str(find_java().path), *options, "-cp", os.pathsep.join(map(str, jars))]

    def _check_address(self, pid: int) -> None:
        address = self._written_address()
        if address != f"{HOST}:{self.port}":
            message = (
                f"broker in {self.folder}: already runs at {address} (process {pid}), not at port {self.port}; "
                "stop it first, or name its port"
            )
            raise BucketsError(message)

    def _check_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = any(self.folder.iterdir())
        except OSError as error:
            message = f"broker folder {self.folder}: cannot be used ({error.strerror}); name one that can be written"
            raise BucketsError(message) from None
        if others and not self._read_properties():
            message = f"broker folder {self.folder}: is not empty, and holds no broker; name an empty or a new folder"
            raise BucketsError(message)

    def _write_properties(self) -> None:
        (self.folder / "tmp").mkdir(exist_ok=True)
        properties = server_properties(self.port, self._controller_port(), self._users, self._keystore)
        self._properties.touch(mode=0o600)  # it may hold passwords
        self._properties.write_text(write_properties(properties), encoding="utf-8")

    def _read_properties(self) -> dict[str, str]:
        try:
            return read_properties(self._properties.read_text(encoding="utf-8"))
        except OSError:
            return {}

    def _written_address(self) -> str | None:
        return client_address(self._read_properties())

    def _controller_port(self) -> int:
        """Return the port it had before, if that is free; else any free one."""
        before = controller_port(self._read_properties())
        if before is not None and before != self.port and why_taken(before) is None:
            return before
        while (port := free_port()) == self.port:
            pass
        return port

    def _format(self, java: Sequence[str]) -> None:
        """Prepare the folder for data; one that was left half way can be prepared again."""
        (self.folder / "data" / "bootstrap.checkpoint").unlink(missing_ok=True)  # Kafka would keep half of one
        command = [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", self._properties.name]
        succeeded, output = run_java(command, self.folder, FORMAT_WITHIN_S)
        with self.log.open("ab") as log:
            log.write(output)
        if not succeeded:
            message = f"broker in {self.folder}: Kafka could not prepare the folder; details: {self.log}"
            raise BucketsError(message)

    def _wait_until_it_answers(self, log_start: int) -> None:
        deadline_s = time.monotonic() + START_WITHIN_S
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        admin = opened(AdminClient, self.kafka, {**client_settings(self.kafka), **quick})
        while True:
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return
            except KafkaException:
                pass
            admin.poll(0)
            if self._process.pid() is None:
                message = f"broker in {self.folder}: Kafka ended while it started: {self._reason(log_start)}"
                raise BucketsError(message)
            if time.monotonic() > deadline_s:
                message = (
                    f"broker in {self.folder}: Kafka does not answer after {START_WITHIN_S:.0f} s; is the machine busy "
                    f"or short of memory? details: {self.log}"
                )
                raise BucketsError(message)

    def _reason(self, log_start: int) -> str:
        """Return the cause that the log of this start names."""
        with self.log.open("rb") as log:
            log.seek(log_start)
            text = log.read().decode(errors="replace")
        exceptions = list(_EXCEPTION.finditer(text))
        causes = [match for match in exceptions if match["caused"]] or exceptions[:1]
        reason = causes[-1]["text"] if causes else (text.strip().splitlines() or ["it says nothing"])[-1]
        return f"{reason.strip()[:300]}; details: {self.log}"


def _cluster_id() -> str:
    """Return a new id of a cluster: 16 random bytes as Kafka writes them; a dash first would be an option."""
    while True:
        written = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not written.startswith("-"):
            return written


AT_ONCE = 10_000
_CONSUMER: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # The broker answers as soon as there is a message, and a reader that was idle does not wait to ask again.
    "fetch.min.bytes": 1,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
_PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)
"""What librdkafka waits out itself."""


class TopicReader:
    """Reads all partitions of some topics; also a context manager."""

    def __init__(self, kafka: KafkaSettings, topics: Sequence[str], from_end: bool) -> None:
        """Begin to read.

        Args:
            kafka: how Kafka is reached.
            topics: the topics, which must exist.
            from_end: only what is written from now on; otherwise from the beginning.

        Raises:
            BucketsError: a topic does not exist, or may not be read.
            Outage: no broker answers.
        """
        self._kafka = kafka
        self._topics = ", ".join(topics)
        settings = {**consumer_settings(kafka), **_CONSUMER, "group.id": f"buckets-reader-{uuid.uuid4()}"}
        self._consumer = opened(Consumer, kafka, settings)
        try:
            self._consumer.assign(self._starts(topics, from_end))
        except KafkaException as error:
            self._consumer.close()
            raise explain(error.args[0], kafka, f"reading {self._topics}") from None
        except BucketsError:
            self._consumer.close()
            raise

    def _starts(self, topics: Sequence[str], from_end: bool) -> list[TopicPartition]:
        there = Broker(self._kafka).check_topics(topics)
        starts = []
        for topic in topics:
            for partition in range(there[topic]):
                start = TopicPartition(topic, partition, OFFSET_BEGINNING)
                if from_end:
                    # The end as it is now: what is written before the first poll is read too.
                    _, start.offset = read_offsets(self._kafka, self._consumer, start)
                starts.append(start)
        return starts

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        self.close()

    def poll(self, timeout_s: float) -> list[Message]:
        """Return the messages since the last time, as soon as there are some, at the latest after `timeout_s`.

        Raises:
            BucketsError: it may not be read any more. A broker that is away is waited for.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            first = self._consumer.poll(max(until_s - time.monotonic(), 0))
            messages = [] if first is None else [first, *self._consumer.consume(AT_ONCE, 0)]
            good = [message for message in messages if self._is_good(message)]
            if good or time.monotonic() >= until_s:
                return good

    def _is_good(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in _PASSING or error.retriable():
            return False
        raise explain(error, self._kafka, f"reading {self._topics}")

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
