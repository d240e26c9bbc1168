"""What settings of a client must be so that one can be made of them: those of Kafka, a registry, a webhook."""

import ssl
from pathlib import Path

from pydantic import SecretStr


def visible(value: str | SecretStr | None) -> str | SecretStr | None:
    """Return a text as it is, also None.

    Raises:
        ValueError: it is there and empty, as an environment variable may be, or ends with its line as that of a file.
    """
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text is not None and not text.strip():
        message = "is empty; write a value, or set the environment variable that stands there, or leave it out"
        raise ValueError(message)
    if text is not None and not text.isprintable():
        message = "holds a line end or another character that cannot be seen; take it out"
        raise ValueError(message)
    return value


def check_authorities(ca_file: str | None) -> None:
    """See that a file has certificates of authorities; nothing where there is none.

    Raises:
        ValueError: it has none, or cannot be read.
    """
    if ca_file is not None:
        _check_file(ca_file)
        try:
            ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            message = f"{ca_file}: holds no certificates in PEM ({_reason(error)}); name a file that does"
            raise ValueError(message) from None


def check_certificate(certificate_file: str | None, key_file: str | None, key_password: SecretStr | None) -> None:
    """See that a client's certificate and its key can be read and go together; nothing where there are none.

    Raises:
        ValueError: they do not, or the password is another one.
    """
    if certificate_file is None or key_file is None:
        return
    for path in (certificate_file, key_file):
        _check_file(path)
    # Without any password OpenSSL would ask for one on the terminal.
    password = "" if key_password is None else key_password.get_secret_value()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate_file, key_file, lambda: password)
    except (OSError, ValueError) as error:
        message = (
            f"{certificate_file} and {key_file} are no certificate and its key in PEM ({_reason(error)}); see both, "
            "and key_password"
        )
        raise ValueError(message) from None


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        message = f"{path}: no such file"
        raise ValueError(message)


def _reason(error: Exception) -> str:
    """Return why OpenSSL refuses a file, without the place in its own code."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
