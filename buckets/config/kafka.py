"""How Kafka is reached: one set of settings for both clients, the one inside Spark and librdkafka."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator

from buckets.config.environment import Settings
from buckets.duration import DAY_MS, DurationMs, format_duration
from buckets.web_address import is_address


def visible(value: Any) -> Any:
    """Refuse a text that is empty, as an environment variable may be, or ends with its line as that of a file."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text is not None and not text.strip():
        message = "is empty; write a value, or set the environment variable that stands there, or leave it out"
        raise ValueError(message)
    if text is not None and not text.isprintable():
        message = "holds a line end or another character that cannot be seen; take it out"
        raise ValueError(message)
    return value


def authority_faults(ca_file: str | None) -> Iterator[str]:
    """Say why a file has no certificates of authorities; nothing where there is no file."""
    if ca_file is not None:
        yield from _missing(ca_file)
        try:
            ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            yield f"{ca_file}: holds no certificates in PEM ({_reason(error)}); name a file that does"


def certificate_faults(certificate_file: str, key_file: str, key_password: SecretStr | None) -> Iterator[str]:
    """Say why a certificate and its key cannot be read or do not go together."""
    yield from _missing(certificate_file)
    yield from _missing(key_file)
    # Without any password OpenSSL would ask for one on the terminal.
    password = _plain(key_password) or ""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate_file, key_file, lambda: password)
    except (OSError, ValueError) as error:
        yield (
            f"{certificate_file} and {key_file} are not a certificate and its key in PEM ({_reason(error)}); see both, "
            "and key_password"
        )


def _missing(path: str) -> Iterator[str]:
    if not Path(path).is_file():
        yield f"{path}: no such file"


def _reason(error: Exception) -> str:
    """Return why OpenSSL refuses a file, without the place in its own code."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)


SHORTEST_DELIVERY_MS, LONGEST_DELIVERY_MS = 2_000, DAY_MS
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Isolation = Literal["read_committed", "read_uncommitted"]
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class SecuritySettings(Settings):
    """How a client authenticates itself, and the broker to it.

    Attributes:
        protocol: without or with TLS, without or with a login.
        mechanism: the mechanism of the login.
        username: the user name of the login.
        password: its password; never shown.
        ca_file: PEM file of the authorities that may sign the broker's certificate; the system's if it is left out.
        certificate_file: PEM file of the client's certificate, where the broker wants one.
        key_file: PEM file of its key (PKCS 8).
        key_password: the password of the key; never shown.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: SecretStr | None = None

    _visible = field_validator("*")(visible)

    def _faults(self) -> Iterator[str]:
        login = {"mechanism": self.mechanism, "username": self.username, "password": self.password}
        missing = [name for name, value in login.items() if value is None]
        if self.protocol.startswith("SASL") and missing:
            yield f"protocol {self.protocol} needs {', '.join(missing)}"
        if not self.protocol.startswith("SASL") and len(missing) < len(login):
            yield f"protocol {self.protocol} has no login: choose SASL_SSL or SASL_PLAINTEXT, or leave it out"
        if (self.certificate_file is None) != (self.key_file is None):
            yield "certificate_file and key_file go together"
        yield from authority_faults(self.ca_file)
        if self.certificate_file is not None and self.key_file is not None:
            yield from certificate_faults(self.certificate_file, self.key_file, self.key_password)


def _address(value: str) -> str:
    if not is_address(value):
        message = f"{value!r} is not an address, as in http://localhost:8081; a login goes into username and password"
        raise ValueError(message)
    return value.rstrip("/")


class RegistrySettings(Settings):
    """How a schema registry is reached.

    Attributes:
        url: where it answers, as in `https://registry:8081`.
        username: the user name of the login, or the key of an API key.
        password: its password; never shown.
        ca_file: PEM file of the authorities that may sign its certificate; the system's if it is left out.
    """

    url: str
    username: str | None = None
    password: SecretStr | None = None
    ca_file: str | None = None

    _url = field_validator("url")(_address)
    _visible = field_validator("username", "password", "ca_file")(visible)

    def _faults(self) -> Iterator[str]:
        if (self.username is None) != (self.password is None):
            yield "username and password go together"
        yield from authority_faults(self.ca_file)


def _hosts_and_ports(value: str) -> str:
    for server in value.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            message = f"{server.strip()!r} is not a host:port, as in localhost:9092"
            raise ValueError(message)
    return value


def _delivery_ms(value: int) -> int:
    # A producer's first message takes most of a second.
    limit = min(max(value, SHORTEST_DELIVERY_MS), LONGEST_DELIVERY_MS)
    if value != limit:
        than = f"{'shorter' if value < limit else 'longer'} than the limit of {format_duration(limit)}"
        message = f"{format_duration(value)} is {than}"
        raise ValueError(message)
    return value


class KafkaSettings(Settings):
    """The `kafka` part of a configuration.

    Attributes:
        bootstrap_servers: `host:port`, or several separated by commas.
        security: login and TLS.
        registry: the schema registry, for formats whose schemas are kept in one.
        outage_patience: how long to wait for a broker that does not answer.
        delivery_timeout: how long messages wait for their acknowledgement before the whole batch is sent again;
            at least 2s, and 1d at most.
        isolation: which messages are read: `read_committed`, those of transactions only once these are committed, or
            `read_uncommitted`, all, also of transactions that are aborted.
    """

    bootstrap_servers: str = Field(min_length=1)
    security: SecuritySettings = SecuritySettings()
    registry: RegistrySettings | None = None
    outage_patience: DurationMs = 600_000
    delivery_timeout: DurationMs = 30_000
    isolation: Isolation = "read_committed"

    _servers = field_validator("bootstrap_servers")(_hosts_and_ports)
    _timeout = field_validator("delivery_timeout")(_delivery_ms)

    def librdkafka(self) -> dict[str, str | int]:
        """Return settings of librdkafka."""
        security = self.security
        settings: dict[str, str | None] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": security.protocol,
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": _plain(security.password),
            "ssl.ca.location": security.ca_file,
            "ssl.certificate.location": security.certificate_file,
            "ssl.key.location": security.key_file,
            "ssl.key.password": _plain(security.key_password),
        }
        return {name: value for name, value in settings.items() if value is not None}

    def java(self) -> dict[str, str]:
        """Return settings of the Java client, without Spark's prefix `kafka.`."""
        security = self.security
        settings = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": security.protocol}
        if security.mechanism is not None and security.username is not None:
            login = f"username={_quoted(security.username)} password={_quoted(_plain(security.password) or '')}"
            settings["sasl.mechanism"] = security.mechanism
            settings["sasl.jaas.config"] = f"{_LOGIN_MODULES[security.mechanism]} required {login};"
        if security.ca_file is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security.ca_file}
        if security.certificate_file is not None and security.key_file is not None:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.certificate.chain"] = Path(security.certificate_file).read_text(encoding="utf-8")
            settings["ssl.keystore.key"] = Path(security.key_file).read_text(encoding="utf-8")
            if security.key_password is not None:
                settings["ssl.key.password"] = security.key_password.get_secret_value()
        return settings


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _quoted(text: str) -> str:
    """Return text as a value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
