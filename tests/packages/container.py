"""The image as a container: unpacked by umoci, run by runc, as an engine for containers would run it."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PRIVATE = ("pid", "ipc", "uts", "mount")
"""Namespaces that a container has for itself; that of cgroups is not to be had everywhere."""


@dataclass(frozen=True)
class Image:
    """An unpacked image: a folder with its files and its settings."""

    bundle: Path
    settings: str
    """With which a runtime starts it, as umoci writes them."""

    @property
    def root(self) -> Path:
        """Its files."""
        return self.bundle / "rootfs"

    def run(
        self,
        *arguments: str,
        data: Path,
        variables: Mapping[str, str] | None = None,
        entry: bool = True,
        network: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a container to its end: not root, nothing writable but `/data`, `/tmp` and `/dev/shm`.

        Args:
            arguments: of the image's entry point; in place of it where `entry` is false.
            data: the folder that is mounted as `/data`.
            variables: that are set beside those of the image.
            entry: whether the image's entry point is started.
            network: whether it has the network of this machine; otherwise none.
        """
        settings: dict[str, Any] = json.loads(self.settings)
        process = settings["process"]
        # umoci puts the entry point and its default arguments together.
        words = process["args"][:-1] if entry else []
        process |= {"args": [*words, *arguments], "terminal": False, "noNewPrivileges": True}
        process["capabilities"] = {kind: [] for kind in process["capabilities"]}
        process["env"] += [f"{name}={value}" for name, value in (variables or {}).items()]
        settings["root"]["readonly"] = True
        settings["hostname"] = "localhost"
        settings["linux"]["namespaces"] = [{"type": kind} for kind in (_PRIVATE if network else (*_PRIVATE, "network"))]
        settings["mounts"] = [each for each in settings["mounts"] if each["type"] != "cgroup"] + [
            {"destination": "/data", "type": "none", "source": str(data), "options": ["rbind", "rw"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
        ]
        (self.bundle / "config.json").write_text(json.dumps(settings))
        command = ["runc", "run", "--bundle", self.bundle, f"buckets-{os.getpid()}"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def unpacked(image: str, folder: Path) -> Iterator[Image]:
    """An image, as `LAYOUT:TAG`, unpacked until the end of the block."""
    bundle = folder / "bundle"
    subprocess.run(["umoci", "unpack", "--image", image, bundle], check=True, capture_output=True)
    try:
        yield Image(bundle, (bundle / "config.json").read_text())
    finally:
        shutil.rmtree(bundle)
