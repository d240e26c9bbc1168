"""A client of schema registries, limited to the paths that all of them share; it also registers result schemas.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from buckets.config.kafka import RegistrySettings
from buckets.config.output import OutputSettings
from buckets.errors import BucketsError, Outage, first_line
from buckets.events.decoded import AVRO, PROTOBUF, WriterSchema
from buckets.outputs.messages import BinaryFormat, schema_text

ANSWER_WITHIN_S = 5.0
PAUSES_S = (0.1, 0.3, 1.0)
"""Pauses before each retry of a registry that does not answer; after the last the batch begins anew."""
NO_SUBJECT = "buckets-is-there"  # A subject requested only to see whether a registry answers
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_LARGEST_BYTES = 32 * 2**20
_LOGIN = (401, 403)
_DONE, _MISSING, _CONFLICT, _INVALID, _BUSY, _FAILED = 200, 404, 409, 422, 429, 500
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403  # The registry's error codes under HTTP 404
_MOST_REFERENCES = 500


class RegistryAway(BucketsError):
    """A registry that does not answer, which may be temporary."""


@dataclass(frozen=True)
class RegisteredSubject:
    """The newest version of a subject: version number, schema number, and schema."""

    version: int
    number: int
    schema: WriterSchema


@dataclass(frozen=True)
class Registry:
    """A schema registry, asked on every call; callers cache its answers."""

    settings: RegistrySettings
    pauses_s: tuple[float, ...] = PAUSES_S

    def schema(self, number: int) -> WriterSchema | None:
        """Return the schema with a number; None if the registry does not know it."""
        path = f"/schemas/ids/{number}"
        answer = self._found(path, (_NO_SCHEMA,), "schema")
        return None if answer is None else self._schema_of(answer, path)

    def newest(self, subject: str) -> RegisteredSubject | None:
        """Return the newest version of a subject; None if there is none. Raises as `schema`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        answer = self._found(path, (_NO_SUBJECT, _NO_VERSION), "subject")
        if answer is None:
            return None
        schema = self._schema_of(answer, path)
        version, number = answer.get("version"), answer.get("id")
        if not isinstance(version, int) or not isinstance(number, int):
            raise self._nonsense(path, "no version and id")
        return RegisteredSubject(version, number, schema)

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema under a subject unless it exists; return its number."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        code, answer = self._send(path, subject, kind, text)
        if code == _MISSING:
            raise self._nonsense(path, "404")
        number = answer.get("id")
        if not isinstance(number, int):
            raise self._nonsense(path, "no id")
        return number

    def check_compatible(self, subject: str, kind: str, text: str) -> None:
        """Check that a schema is compatible with a subject's newest one, if any. Raises as `register`."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        code, answer = self._send(path, subject, kind, text)
        if code != _MISSING and answer.get("is_compatible") is False:
            reasons = answer.get("messages")
            said = first_line(ValueError(str(reasons[0]))) if isinstance(reasons, list) and reasons else "no reason"
            raise self._refused_schema(subject, _CONFLICT, said)

    def _found(self, path: str, codes: tuple[int, ...], what: str) -> dict[str, Any] | None:
        code, answer = self._get(path)
        if code != _MISSING:
            return answer
        if answer.get("error_code") in codes:
            return None
        raise self._nonsense(path, f"404 without the code of an unknown {what}")

    def _send(self, path: str, subject: str, kind: str, text: str) -> tuple[int, dict[str, Any]]:
        """Send a schema; Avro's type is omitted, since old registries know no other."""
        named = {} if kind == AVRO else {"schemaType": kind}
        code, answer = self._get(path, json.dumps({"schema": text} | named).encode())
        if code in (_CONFLICT, _INVALID):
            raise self._refused_schema(subject, code, first_line(ValueError(str(answer.get("message", code)))))
        return code, answer

    def _refused_schema(self, subject: str, code: int, reason: str) -> BucketsError:
        message = f"registry {self.settings.url}: refuses the schema of subject {subject} ({reason})"
        if code == _CONFLICT:
            message = (
                f"registry {self.settings.url}: the schema of subject {subject} is not compatible with those that it "
                f"has ({reason}); name another topic for the output, or see what has been registered there"
            )
        return BucketsError(message)

    def _schema_of(self, answer: dict[str, Any], path: str) -> WriterSchema:
        text, kind = answer.get("schema"), answer.get("schemaType", AVRO)
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._nonsense(path, "no schema")
        if kind == AVRO and not _is_json(text):
            raise self._nonsense(path, "a schema of Avro that is not JSON")
        references: dict[tuple[str, int], tuple[str, str]] = {}
        self._add_references(answer, path, references, ())
        names, texts = zip(*references.values(), strict=True) if references else ((), ())
        return WriterSchema(kind, text, texts, names if kind == PROTOBUF else ())

    def _add_references(
        self,
        answer: dict[str, Any],
        path: str,
        into: dict[tuple[str, int], tuple[str, str]],
        outer: tuple[tuple[str, int], ...],
    ) -> None:
        """Add the schemas that one refers to, each after its own references; `outer` are those that refer to it."""
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise self._nonsense(path, "references that are not a list")
        for reference in references:
            try:
                place = (str(reference["subject"]), int(reference["version"]))
                name = str(reference.get("name", ""))
            except (LookupError, TypeError, ValueError, AttributeError):
                raise self._nonsense(path, "references without subject and version") from None
            if place in into:
                continue
            if place in outer:
                raise self._nonsense(path, "a schema that refers to itself")
            if len(into) + len(outer) > _MOST_REFERENCES:
                raise self._nonsense(path, f"more than {_MOST_REFERENCES:,} references")
            referred_path = f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}"
            code, referred = self._get(referred_path)
            if code == _MISSING:
                raise self._nonsense(referred_path, "nothing, though a schema refers to it")
            if not isinstance(referred.get("schema"), str):
                raise self._nonsense(referred_path, "no schema")
            self._add_references(referred, referred_path, into, (*outer, place))
            into[place] = name, referred["schema"]

    def _get(self, path: str, sent: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request, with a few retries, by POST if `sent` is given; return the HTTP status and the body."""
        for pause_s in self.pauses_s:
            try:
                return self._ask(path, sent)
            except RegistryAway:
                time.sleep(pause_s)
        return self._ask(path, sent)

    def _ask(self, path: str, sent: bytes | None) -> tuple[int, dict[str, Any]]:
        settings = self.settings
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        headers |= {} if sent is None else {"Content-Type": _MEDIA_TYPE}
        if settings.username is not None and settings.password is not None:
            login = f"{settings.username}:{settings.password.get_secret_value()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        is_tls = settings.url.startswith("https:")
        tls = ssl.create_default_context(cafile=settings.ca_file) if is_tls else None
        request = urllib.request.Request(settings.url + path, sent, headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_WITHIN_S, context=tls) as response:
                answer = _object_of(response.read(_LARGEST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, self._said_with(error, path)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        if answer is None:
            raise self._nonsense(path, "no JSON object")
        return _DONE, answer

    def _said_with(self, error: urllib.error.HTTPError, path: str) -> dict[str, Any]:
        """Return the body that explains a missing item or a refused schema, if it is readable."""
        if error.code in _LOGIN:
            message = (
                f"registry {self.settings.url}: the login is refused ({error.code}); correct username and password "
                "under kafka.registry"
            )
            raise BucketsError(message)
        if error.code == _BUSY or error.code >= _FAILED:
            reason = f"answers {error.code}"
            raise self._away(reason)
        if error.code not in (_MISSING, _CONFLICT, _INVALID):
            raise self._nonsense(path, str(error.code))
        try:
            return _object_of(error.read(_LARGEST_BYTES)) or {}
        except (OSError, http.client.HTTPException):
            return {}

    def _unreachable(self, error: OSError | http.client.HTTPException) -> BucketsError:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            return BucketsError(
                f"registry {self.settings.url}: no TLS connection ({first_line(reason)}); correct url and ca_file "
                "under kafka.registry"
            )
        shown = first_line(reason) if isinstance(reason, BaseException) else str(reason)
        return self._away(f"does not answer ({shown})")

    def _away(self, reason: str) -> RegistryAway:
        return RegistryAway(f"registry {self.settings.url}: {reason}; see that it runs, or correct kafka.registry.url")

    def _nonsense(self, path: str, found: str) -> BucketsError:
        return BucketsError(
            f"registry {self.settings.url}: {path} gives {found}, as no schema registry does; correct "
            "kafka.registry.url"
        )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _object_of(content: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


KINDS: Mapping[str, str] = {"avro": AVRO, "protobuf": PROTOBUF}  # The registry's names for the formats of results


class OutputSchemas:
    """The numbers of the schemas of a job's outputs, requested on first use."""

    def __init__(self, registry: Registry, output: OutputSettings, written_in: BinaryFormat) -> None:
        self._registry = registry
        self._output = output
        self._written_in = written_in
        self._prefixes: dict[str, bytes] = {}

    def register(self) -> None:
        """Register the schemas of all outputs in use that are not registered yet."""
        for output in self._output.topics_in_use():
            self.prefix(output)

    def prefix(self, output: str) -> bytes:
        """Return the prefix of each message of an output, which contains its schema's number. Raises likewise."""
        if output not in self._prefixes:
            subject, text = f"{self._output.topic(output)}-value", schema_text(output, self._written_in)
            try:
                number = self._registry.register(subject, KINDS[self._written_in], text)
            except RegistryAway as error:
                raise Outage(error.message) from None
            self._prefixes[output] = b"\0" + number.to_bytes(4)
        return self._prefixes[output]


def check_compatible(registry: Registry, output: OutputSettings, written_in: BinaryFormat) -> None:
    """Refuse schemas of outputs in use that the registry would refuse, without registering any."""
    for name, topic in output.topics_in_use().items():
        registry.check_compatible(f"{topic}-value", KINDS[written_in], schema_text(name, written_in))
