"""The console of a job: where it listens, and who may do what in it."""

from typing import Final, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from buckets.config.environment import Settings

Role = Literal["read", "analyst", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "analyst", "admin")
"""Each may do what those before it may: look; give verdicts, snooze and draft; change what is in force."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 8484
_SHORTEST_TOKEN = 16


class ConsoleSettings(Settings):
    """How the console of a job is reached.

    Attributes:
        host: the address that it listens on.
        port: the port there.
        names: further names under which it is reached, as a proxy passes them on.
        token: what people give to sign in, and a proxy as a bearer token.
        trusted_user_header: the header in which a proxy says who somebody is.
        roles: what people may do, by the names in that header.
        role: what everybody else may do; without it, whatever there is, or with the header only look.
    """

    host: str = Field(default=LOOPBACK[0], min_length=1)
    port: int = Field(default=DEFAULT_PORT, ge=1, le=65_535)
    names: tuple[str, ...] = ()
    token: SecretStr | None = None
    trusted_user_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,100}$")
    roles: dict[str, Role] = Field(default_factory=dict)
    role: Role | None = None

    @field_validator("token")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < _SHORTEST_TOKEN:
            message = f"is shorter than {_SHORTEST_TOKEN} characters; make one with `openssl rand -hex 16`"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _somebody_is_known(self) -> "ConsoleSettings":
        if self.host not in LOOPBACK and self.token is None:
            message = (
                f"host {self.host} can be reached from elsewhere, and nothing says who may come in; add a token, or "
                "leave host out to listen on this machine only"
            )
            raise ValueError(message)
        if self.roles and self.trusted_user_header is None:
            message = "roles go by the names that a proxy passes on; add trusted_user_header, or write role for all"
            raise ValueError(message)
        return self

    def role_of(self, name: str) -> Role:
        """Return what a person may do."""
        return self.roles.get(name) or self.role or ("admin" if self.trusted_user_header is None else "read")
