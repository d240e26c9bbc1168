"""Tools that are published as Go modules: helm and kubeconform, each built once for a user, at a pinned version."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from buckets.errors import BucketsError

_GO_FOLDER = "/usr/local/go/bin"
"""Where Go's own archive puts it, which is not always on PATH."""


def find_go() -> str | None:
    """Return the path of the command `go`, if there is one."""
    return shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), _GO_FOLDER)))


@dataclass(frozen=True)
class GoTool:
    """A command of a Go module.

    Attributes:
        module: the path of its package.
        version: the tag that is built.
    """

    module: str
    version: str

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.module.rpartition("/")[2]

    @property
    def place(self) -> Path:
        """Where it is kept once it was built."""
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(caches, "buckets-tools", self.version, self.name)

    def built(self) -> Path | None:
        """Return its path if it was built."""
        return self.place if self.place.is_file() else None

    def build(self) -> Path:
        """Return its path; it is built if it was not.

        Raises:
            BucketsError: there is no Go, or it cannot be built.
        """
        if not self.place.is_file():
            go = find_go()
            if go is None:
                message = f"{self.name} is built with Go, and there is none on PATH; install Go 1.26 or newer"
                raise BucketsError(message)
            target = os.environ | {"GOBIN": str(self.place.parent), "GOFLAGS": "-trimpath -ldflags=-s"}
            command = [go, "install", f"{self.module}@{self.version}"]
            built = subprocess.run(command, env=target, check=False, capture_output=True, text=True)
            if built.returncode != 0:
                message = f"{self.name} cannot be built: {built.stderr[-1000:]}"
                raise BucketsError(message)
        return self.place


HELM = GoTool("helm.sh/helm/v4/cmd/helm", "v4.3.1")
"""It lints and renders charts; to build it takes minutes."""
KUBECONFORM = GoTool("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
"""It holds what is rendered against schemas; to build it takes less than half a minute."""
