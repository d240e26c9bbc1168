"""A real schema registry for tests: axonops-schema-registry, a Go module, built once by Go's own command.

Where there is no Go, or the module cannot be fetched, the tests' own small registry answers the same paths.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from buckets.kafka.local_broker import free_port
from deploy.go_program import built
from tests.answering import wait_for_answer
from tests.registry import small_registry

MODULE, VERSION = "github.com/axonops/axonops-schema-registry", "v0.2.1"


@contextlib.contextmanager
def schema_registry() -> Iterator[str]:
    """The address of a registry, until the end of the block."""
    program = built(MODULE, VERSION, "cmd/schema-registry")
    if program is None:
        with small_registry() as registry:
            yield registry.url
        return
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="registry-") as folder:
        (Path(folder) / "config.yaml").write_text(
            f"server: {{host: 127.0.0.1, port: {port}}}\nstorage: {{type: memory}}\n", encoding="utf-8"
        )
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([program, "--config", f"{folder}/config.yaml"], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for_answer(f"{url}/subjects", Path(folder) / "log")
            yield url
        finally:
            process.kill()
            process.wait()
