"""Where alerts go over HTTP."""

import base64
import binascii

from pydantic import Field, SecretStr, field_validator, model_validator

from buckets.config.client_values import check_authorities, visible
from buckets.config.environment import Settings
from buckets.duration import DAY_MS, HOUR_MS, DurationMs, format_duration
from buckets.web_address import is_address

SECRET_PREFIX = "whsec_"
_LEAST_BYTES = 24
_LEAST_TIMEOUT_MS, _MOST_TIMEOUT_MS = 100, HOUR_MS


class WebhookSettings(Settings):
    """Where alerts go over HTTP, each in a request of its own, signed as Standard Webhooks says.

    Attributes:
        url: where they are posted.
        secret: what they are signed with: `whsec_` and at least 24 bytes in base64; never shown. Left out: they are
            not signed.
        timeout: how long an alert may take from connecting to the code of the answer, all waits together; at least
            100ms, and 1h at most.
        connections: how many alerts are sent at once, each over a connection of its own; alerts of one key stay in
            order.
        give_up_after: how old an alert gets before it is given up, and written to the file of those that were.
        ca_file: PEM file of the authorities that may sign the receiver's certificate; the system's if it is left out.
    """

    url: str
    secret: SecretStr | None = None
    timeout: DurationMs = 10_000
    connections: int = Field(default=1, ge=1, le=64)
    give_up_after: DurationMs = DAY_MS
    ca_file: str | None = None

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if not is_address(value, may_have_query=True):
            message = "is no address, as in https://cases.example.com/alerts; a login does not go into it"
            raise ValueError(message)
        return value

    @field_validator("timeout")
    @classmethod
    def _is_within_limits(cls, value: int) -> int:
        if not _LEAST_TIMEOUT_MS <= value <= _MOST_TIMEOUT_MS:
            limits = f"{format_duration(_LEAST_TIMEOUT_MS)} to {format_duration(_MOST_TIMEOUT_MS)}"
            message = f"{format_duration(value)} is not within the limits of {limits}"
            raise ValueError(message)
        return value

    @field_validator("secret", "ca_file")
    @classmethod
    def _is_visible(cls, value: str | SecretStr | None) -> str | SecretStr | None:
        return visible(value)

    @model_validator(mode="after")
    def _secret_is_a_key(self) -> "WebhookSettings":
        if self.secret is not None and len(self.key or b"") < _LEAST_BYTES:
            message = f"secret: is not {SECRET_PREFIX} followed by at least {_LEAST_BYTES} bytes in base64"
            raise ValueError(message)
        check_authorities(self.ca_file)
        return self

    @property
    def place(self) -> str:
        """Where alerts are posted, without what a query may hold."""
        return self.url.partition("?")[0]

    @property
    def key(self) -> bytes | None:
        """The bytes of the secret; None if there is none, or it is no secret."""
        written = "" if self.secret is None else self.secret.get_secret_value()
        if not written.startswith(SECRET_PREFIX):
            return None
        try:
            return base64.b64decode(written.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            return None
