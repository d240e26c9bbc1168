"""A small schema registry for tests: the paths that a job asks, and answers that a test may spoil."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""The code, and what is answered: bytes as they are, anything else as JSON."""


class SmallRegistry:
    """Schemas by number and subject, over HTTP."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.spoil: Callable[[str], Answer | None] = lambda path: None
        """Answers instead of the registry, unless it returns None."""
        self.url = ""

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
        """Keep a schema as the newest version of a subject; returns its number."""
        number = len(self.schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        # As registries do, that of Avro is not named.
        named = {} if kind == "AVRO" else {"schemaType": kind}
        self.schemas[number] = {"schema": text, "references": list(references)} | named
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> Answer:
        """What a path gives."""
        spoilt = self.spoil(path)
        if spoilt is not None:
            return spoilt
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number]:
                known = self.schemas.get(int(number))
                return (200, known) if known else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", version]:
                numbers = self.subjects.get(subject, [])
                if not numbers:
                    return 404, {"error_code": 40401, "message": "Subject not found"}
                at = len(numbers) if version == "latest" else int(version)
                return 200, self.schemas[numbers[at - 1]] | {"version": at, "id": numbers[at - 1], "subject": subject}
        return 404, b"<html>not here</html>"


@contextlib.contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    """A registry on a free port, until the end of the block."""
    registry = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, dict(self.headers)))
            self._send(*registry.answer(self.path))

        def do_POST(self) -> None:
            """Register a schema, as producers do; one that is there keeps its number."""
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            spoilt = registry.spoil(self.path)
            if spoilt is not None:
                self._send(*spoilt)
                return
            if self.path.startswith("/compatibility/"):
                self._send(200, {"is_compatible": True})
                return
            subject = self.path.split("/")[2]
            numbers = registry.subjects.get(subject, [])
            number = next((each for each in numbers if registry.schemas[each]["schema"] == said["schema"]), None)
            if number is None:
                number = registry.register(subject, said["schema"], said.get("schemaType", "AVRO"))
            at = registry.subjects[subject].index(number) + 1
            self._send(200, registry.schemas[number] | {"id": number, "version": at, "subject": subject})

        def _send(self, code: int, answer: Any) -> None:
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
