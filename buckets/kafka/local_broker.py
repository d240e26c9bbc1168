"""A real Apache Kafka on this machine: one node, for trying things out and for tests.

It is both broker and controller (KRaft). All its files are in one folder: the data, `server.properties`, `broker.log`,
and `broker.pid` while it runs. It runs in its own session and outlives the process that started it.
"""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from buckets.config.kafka import KafkaSettings, SecuritySettings
from buckets.errors import BucketsError
from buckets.java.jars import broker_jar_paths
from buckets.java.java import find_java, run_java
from buckets.kafka.faults import client_settings, opened

HOST = "127.0.0.1"  # Where a local broker listens: on this machine only
STOP_WITHIN_S = 30.0
KILL_WITHIN_S = 10.0
POLL_S = 0.05
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
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    # Relative to the folder, where it runs: this is a comma-separated list, and the folder's name may contain commas.
    "log.dirs": "data",
    # Topics are created explicitly, with the partitions that they need.
    "auto.create.topics.enable": "false",
    # One node: internal topics have one replica, and need few partitions.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A consumer begins at once, and a killed broker returns sooner.
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Nothing is deleted by age: event times are often in the past.
    "log.retention.ms": "-1",
    # The default takes half of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
}


def _why_taken(port: int) -> str | None:
    """Return why nobody can listen at a port now; None if somebody can."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except OSError as error:
            return error.strerror or str(error)
    return None


def free_port() -> int:
    """Return a port where nobody listens now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


@dataclass(frozen=True)
class BrokerStatus:
    """Whether a broker runs."""

    pid: int | None  # its process; None if it does not run
    address: str | None  # `host:port`, even if it has been stopped; None if none was ever started in the folder


def _broken(folder: Path, reason: str) -> BucketsError:
    return BucketsError(f"broker in {folder}: {reason}")


class LocalBroker:
    """One Kafka node in a folder."""

    def __init__(
        self,
        folder: Path,
        port: int = 9092,
        security: SecuritySettings | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Choose the folder and the port, on this machine only; nothing is started or written yet.

        `security` is how clients must connect, and `properties` are further Kafka properties that this needs.
        """
        self.folder = folder.absolute()
        self.port = port
        self._more = dict(properties or {})
        self._properties = self.folder / "server.properties"
        self._pid_file = self.folder / "broker.pid"
        self._mark = f"-Dbuckets.broker={self.folder}"
        """A command-line option that only this process has; `-cp` comes after it."""
        self.log = self.folder / "broker.log"
        self.kafka = KafkaSettings(bootstrap_servers=f"{HOST}:{port}", security=security or SecuritySettings())

    def status(self) -> BrokerStatus:
        """Return whether the broker runs, and where."""
        address = self._read_properties().get("listeners", "").split(",")[0].partition("://")[2]
        return BrokerStatus(self._pid(), address or None)

    def start(self, say: Callable[[str], None] | None = None) -> bool:
        """Start the broker and wait until it answers; return False if it was already running."""
        status = self.status()
        if status.pid is not None:
            if status.address != f"{HOST}:{self.port}":
                there = f"already runs at {status.address} (process {status.pid}), not at port {self.port}"
                raise _broken(self.folder, f"{there}; stop it first, or name its port")
            return False
        reason = _why_taken(self.port)
        if reason is not None:
            message = (
                f"port {self.port} of {HOST} cannot be used ({reason}); stop who has it, or choose another with --port"
            )
            raise BucketsError(message)
        self._check_folder()
        jars = broker_jar_paths(say) if say else broker_jar_paths()
        # Unpacked native libraries stay in the folder, even if the broker is killed.
        options = [*_JAVA_OPTIONS, f"-Djava.io.tmpdir={self.folder / 'tmp'}", self._mark]
        java = [str(find_java()), *options, "-cp", os.pathsep.join(map(str, jars))]
        self._write_properties()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java)
        written = self.log.stat().st_size if self.log.exists() else 0
        command = [*java, "kafka.Kafka", self._properties.name]
        try:
            subprocess.run(
                ["sh", "-c", _IN_BACKGROUND, "sh", self.log.name, self._pid_file.name, *command],
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
        """Shut the broker down, killing it if that takes too long; return whether it was running."""
        return self._end(signal.SIGTERM, STOP_WITHIN_S) or self.kill()

    def kill(self) -> bool:
        """Kill the broker, as a crash would; return whether it was running."""
        if self._pid() is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        if not self._end(signal.SIGKILL, KILL_WITHIN_S):
            raise _broken(self.folder, f"process {self._pid()} does not end; end it by hand")
        return True

    def _pid(self) -> int | None:
        """Return the pid in the pid file if that process is this broker."""
        try:
            pid = int(self._pid_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return pid if f"{self._mark} -cp " in _command_line(pid) else None

    def _end(self, with_signal: signal.Signals, within_s: float) -> bool:
        """Send a signal and wait for the end; return whether the broker was running and has ended."""
        pid = self._pid()
        if pid is None:
            return False
        try:
            os.kill(pid, with_signal)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise _broken(self.folder, f"process {pid} is another user's; stop it as that user") from None
        deadline_s = time.monotonic() + within_s
        while not _has_ended(pid):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        self._pid_file.unlink(missing_ok=True)
        return True

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
        """Write the properties; the controller keeps its previous port if that is free."""
        before = self._read_properties().get("controller.quorum.voters", "").rpartition(":")[2]
        controller = int(before) if before.isdecimal() else self.port
        while controller == self.port or _why_taken(controller) is not None:
            controller = free_port()
        properties = {
            **_PROPERTIES,
            "listeners": f"CLIENTS://{HOST}:{self.port},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": f"CLIENTS:{self.kafka.security.protocol},CONTROLLER:PLAINTEXT",
            **self._more,
        }
        (self.folder / "tmp").mkdir(exist_ok=True)
        self._properties.touch(mode=0o600)  # it may hold passwords
        # JSON escapes text as such a file does.
        lines = (f"{name}={json.dumps(value)[1:-1]}\n" for name, value in properties.items())
        self._properties.write_text("".join(lines), encoding="utf-8")

    def _read_properties(self) -> dict[str, str]:
        """Return the properties written last, without unescaping; empty if no broker was ever started."""
        try:
            lines = self._properties.read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def _format(self, java: Sequence[str]) -> None:
        """Format the folder for data, including one whose formatting was interrupted."""
        (self.folder / "data" / "bootstrap.checkpoint").unlink(missing_ok=True)  # Kafka would keep an incomplete one
        command = [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", self._properties.name]
        succeeded, output = run_java(command, self.folder, FORMAT_WITHIN_S)
        with self.log.open("ab") as log:
            log.write(output)
        if not succeeded:
            raise _broken(self.folder, f"Kafka could not prepare the folder; details: {self.log}")

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
            if self._pid() is None:
                raise _broken(self.folder, f"Kafka ended while it started: {self._reason(log_start)}")
            if time.monotonic() > deadline_s:
                why = "is the machine busy or short of memory?"
                reason = f"Kafka does not answer after {START_WITHIN_S:.0f} s; {why} details: {self.log}"
                raise _broken(self.folder, reason)

    def _reason(self, log_start: int) -> str:
        with self.log.open("rb") as log:
            log.seek(log_start)
            text = log.read().decode(errors="replace")
        exceptions = list(_EXCEPTION.finditer(text))
        causes = [match for match in exceptions if match["caused"]] or exceptions[:1]
        reason = causes[-1]["text"] if causes else (text.strip().splitlines() or ["it says nothing"])[-1]
        return f"{reason.strip()[:300]}; details: {self.log}"


def _cluster_id() -> str:
    """Return a new cluster id: 16 random bytes in Kafka's encoding; a leading dash would read as an option."""
    while True:
        written = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not written.startswith("-"):
            return written


def _command_line(pid: int) -> str:
    """Return a process's command line, arguments separated by spaces; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        pass
    if Path("/proc/self").exists():
        return ""
    asked = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


def _has_ended(pid: int) -> bool:
    """Return whether a process holds no files or ports any more; a dead one may remain as a zombie."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state in "ZX" and len(list((process / "task").iterdir())) == 1
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
