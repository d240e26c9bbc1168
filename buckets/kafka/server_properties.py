"""The settings, ports and process of a Kafka that is one node; and events of a file as messages for it."""

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buckets.errors import BucketsError
from buckets.events.arrivals import DeadLetter, parse
from buckets.events.event_file import EventFile, file_arrivals, open_event_file, raw_lines
from buckets.events.json_events import fields_of
from buckets.events.schema import EventSchema
from buckets.rule_tests.given_events import written_events

HOST = "127.0.0.1"  # Where a local broker listens: on this machine only


def check_port(port: int) -> None:
    """See that somebody can listen at a port.

    Raises:
        BucketsError: nobody can; says why.
    """
    reason = why_taken(port)
    if reason is not None:
        message = f"port {port} of {HOST} cannot be used ({reason}); stop who has it, or choose another with --port"
        raise BucketsError(message)


def why_taken(port: int) -> str | None:
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


_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    # Relative to the folder, where it runs: this is a list with commas, and a folder's name may contain some.
    "log.dirs": "data",
    # Topics are created on purpose, with the partitions that they need.
    "auto.create.topics.enable": "false",
    # One node: internal topics have one replica, and need not many partitions.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A consumer begins at once, and a broker that was killed comes back sooner.
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Nothing is removed because it is old: event times are often in the past.
    "log.retention.ms": "-1",
    # The default takes half of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
}


@dataclass(frozen=True)
class Keystore:
    """The certificate of a broker."""

    path: Path  # PKCS 12 file of the certificate and its key
    password: str  # of the file
    ca_file: Path  # PEM file of who signed the certificate, for clients


def client_protocol(users: Mapping[str, str], keystore: Keystore | None) -> str:
    """Kafka's name for a listener with a login if there are users, and with TLS if there is a certificate."""
    return ("SASL_" if users else "") + ("SSL" if keystore else "PLAINTEXT")


def server_properties(
    port: int, controller: int, users: Mapping[str, str], keystore: Keystore | None
) -> dict[str, str]:
    """Return all properties.

    Raises:
        BucketsError: a user's name cannot be one.
    """
    return {
        **_PROPERTIES,
        "listeners": f"CLIENTS://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": f"CLIENTS:{client_protocol(users, keystore)},CONTROLLER:PLAINTEXT",
        **(_login_properties(users) if users else {}),
        **(_tls_properties(keystore) if keystore else {}),
    }


def write_properties(properties: Mapping[str, str]) -> str:
    """Return properties as the text of a file; JSON escapes text as such a file does."""
    return "".join(f"{name}={json.dumps(value)[1:-1]}\n" for name, value in properties.items())


def read_properties(text: str) -> dict[str, str]:
    """Return the properties in the text of a file, without undoing escapes."""
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines())}


def client_address(properties: Mapping[str, str]) -> str | None:
    """Return `host:port` of the clients' listener, which is the first."""
    return properties.get("listeners", "").split(",")[0].partition("://")[2] or None


def controller_port(properties: Mapping[str, str]) -> int | None:
    """Return the port of the controller."""
    port = properties.get("controller.quorum.voters", "").rpartition(":")[2]
    return int(port) if port.isdecimal() else None


def _login_properties(users: Mapping[str, str]) -> dict[str, str]:
    """Return how clients log in; the broker itself has a login too, which nobody needs to know."""
    for user in users:
        if not user.isidentifier():
            message = f"broker: user {user!r} is not a name of letters, digits and underscores; choose another"
            raise BucketsError(message)
    own = secrets.token_hex(16)
    logins = {f"user_{user}": password for user, password in {**users, "_broker": own}.items()}
    options = {"username": "_broker", "password": own, **logins}
    written = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in options.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{module} required {written};",
    }


def _tls_properties(keystore: Keystore) -> dict[str, str]:
    """Return the certificate it shows, and whom it trusts: a broker is a client of its own listener."""
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore.path.absolute()),
        "ssl.keystore.password": keystore.password,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keystore.ca_file.absolute()),
    }


STOP_WITHIN_S = 30.0
KILL_WITHIN_S = 10.0
POLL_S = 0.05


class BrokerProcess:
    """The process of the broker in a folder, whether it runs or not."""

    def __init__(self, folder: Path) -> None:
        """Take the broker of `folder`; nothing is asked yet."""
        self._folder = folder
        self.pid_file = folder / "broker.pid"
        self.mark = f"-Dbuckets.broker={folder}"
        """The option on its command line that no other process has; `-cp` comes after it."""

    def pid(self) -> int | None:
        """Return the pid in the pid file, if the process that has it is this broker."""
        try:
            pid = int(self.pid_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return pid if f"{self.mark} -cp " in _command_line(pid) else None

    def stop(self) -> bool:
        """Stop it in good order; kill it if that takes too long.

        Returns:
            Whether it ran.
        """
        return self._end(signal.SIGTERM, STOP_WITHIN_S) or self.kill()

    def kill(self) -> bool:
        """Kill it, as a crash would.

        Returns:
            Whether it ran.

        Raises:
            BucketsError: its process does not end.
        """
        if self.pid() is None:
            self.pid_file.unlink(missing_ok=True)
            return False
        if not self._end(signal.SIGKILL, KILL_WITHIN_S):
            message = f"broker in {self._folder}: process {self.pid()} does not end; end it by hand"
            raise BucketsError(message)
        return True

    def _end(self, with_signal: signal.Signals, within_s: float) -> bool:
        """Send it a signal, and wait until it has ended; whether it ran and has ended."""
        pid = self.pid()
        if pid is None:
            return False
        try:
            os.kill(pid, with_signal)
        except ProcessLookupError:
            pass
        except PermissionError:
            message = f"broker in {self._folder}: process {pid} is another user's; stop it as that user"
            raise BucketsError(message) from None
        deadline_s = time.monotonic() + within_s
        while not has_ended(pid):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        self.pid_file.unlink(missing_ok=True)
        return True


def _command_line(pid: int) -> str:
    """Return the command line of a process, its arguments separated by spaces; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        pass
    if Path("/proc/self").exists():
        return ""
    asked = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


def has_ended(pid: int) -> bool:
    """Return whether nothing of a process holds files or ports any more; a dead one may wait for its parent."""
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


KeyedMessage = tuple[str, bytes]  # A key and a value


def event_messages(
    path: Path, schema: EventSchema, key: str, on_bad: Callable[[Sequence[DeadLetter]], None]
) -> Iterator[KeyedMessage]:
    """Return the events of a file as messages, in its order.

    Lines, or records, of JSON are sent as they are, also those that are no events. Rows of CSV and Parquet are written
    as JSON, with the fields that the event schema declares.

    Args:
        path: a file that `buckets evaluate` takes.
        schema: the event schema.
        key: the field whose value is the key of a message; a line that has none gets an empty key.
        on_bad: called with rows of CSV or Parquet that are no events, and so are not sent.

    Raises:
        BucketsError: the file cannot be read, or the schema does not declare the field.
    """
    if key not in schema.field_names:
        message = f"--key {key}: event schema {schema.name!r} has no such field; it has {', '.join(schema.field_names)}"
        raise BucketsError(message)
    if key == schema.event_id and schema.identity.is_made:
        message = f"--key {key}: is an id that is made where events are read, and no message has it; name another field"
        raise BucketsError(message)
    if key in schema.arrays:
        message = f"--key {key}: is an array, and the key of a message is one value; name another field"
        raise BucketsError(message)
    file = open_event_file(path, schema)
    if file.kind != "json" and key not in file.fields:
        message = f"--key {key}: {path} has no such column; name another field"
        raise BucketsError(message)
    return _lines(file, schema, key) if file.kind == "json" else _rows(file, schema, key, on_bad)


def _lines(file: EventFile, schema: EventSchema, key: str) -> Iterator[KeyedMessage]:
    for line in raw_lines(file, schema):
        yield _key_of_line(line, key), line


def _key_of_line(line: bytes, key: str) -> str:
    try:
        (value,) = fields_of(line.decode(), [key])
    except ValueError:
        return ""
    return _text(value)


def _rows(
    file: EventFile, schema: EventSchema, key: str, on_bad: Callable[[Sequence[DeadLetter]], None]
) -> Iterator[KeyedMessage]:
    for batch in file_arrivals(file, schema):
        events, dead_letters = parse(batch, schema, frozenset())
        if dead_letters:
            on_bad(dead_letters)
        for row in written_events(events, schema):
            if schema.identity.is_made:
                del row[schema.event_id]
            yield _text(row.get(key)), msgspec.json.encode(row)


def _text(value: object) -> str:
    """Return a value as the text of a key: the same for all spellings of one key of a rule, but for numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ""
