"""The `server.properties` of a Kafka that is one node: what is in it, as text, and read back."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from buckets.errors import BucketsError
from buckets.kafka.port import HOST

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
    """The certificate of a broker.

    Attributes:
        path: PKCS 12 file of the certificate and its key.
        password: of the file.
        ca_file: PEM file of who signed the certificate, for clients.
    """

    path: Path
    password: str
    ca_file: Path


def client_protocol(users: Mapping[str, str], keystore: Keystore | None) -> str:
    """Kafka's name for a listener with a login if there are users, and with TLS if there is a certificate."""
    return ("SASL_" if users else "") + ("SSL" if keystore else "PLAINTEXT")


def server_properties(
    port: int, controller: int, users: Mapping[str, str], keystore: Keystore | None
) -> dict[str, str]:
    """Return all properties.

    Args:
        port: where clients reach it.
        controller: the port of its controller, which only it uses.
        users: passwords by user; without any there is no login.
        keystore: its certificate; without one there is no TLS.

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
