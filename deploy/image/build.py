"""Builds the image without an engine for containers: `python -m deploy.image.build` carries the Containerfile out.

1. mmdebstrap makes Debian's base system: one layer, as an image `debian:…-slim` is.
2. What the Containerfile runs and copies is done in there, by chroot: the second layer.
3. umoci writes layers and settings as an OCI image in `dist/image.oci`, which every engine loads.

It needs root, mmdebstrap and umoci (`apt-get install mmdebstrap umoci`).
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from buckets.errors import BucketsError
from buckets.version import own_version
from deploy.image.containerfile import CONTAINERFILE, Containerfile, Step, read_containerfile
from deploy.image.files import DIST, put_together

LAYOUT = "image.oci"
"""The folder of the image, beside the wheel."""
_SLIM = ("man", "doc", "locale", "info")
"""Folders of /usr/share that Debian's slim images leave out."""
_TRUST = {"PIP_CERT": "/etc/ssl/certs/ca-certificates.crt", "JAVA_TRUST": "/etc/ssl/certs/java/cacerts"}
"""Where Debian says whom to trust, for pip and for Java."""
_LENT = "run/lent"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build(dist: Path = DIST) -> Path:
    """Build the image of the wheel in a folder, as an OCI layout beside it; an earlier one is replaced.

    Returns:
        The folder of the image, whose tag is the version.

    Raises:
        BucketsError: a tool is missing, or a step has failed.
    """
    _look_for("mmdebstrap", "umoci", "chroot", "mount")
    said = read_containerfile(CONTAINERFILE.read_text(encoding="utf-8"))
    put_together(dist)
    layout = dist / LAYOUT
    shutil.rmtree(layout, ignore_errors=True)
    image = f"{layout}:{own_version()}"
    with tempfile.TemporaryDirectory(dir=dist, prefix=".image-") as scratch:
        bundle = Path(scratch, "bundle")
        _run("umoci", "init", "--layout", layout)
        _run("umoci", "new", "--image", image)
        _run("umoci", "unpack", "--image", image, bundle)
        _make_base(said.base, bundle / "rootfs")
        _run("umoci", "repack", "--refresh-bundle", "--image", image, bundle)
        for step in said.steps:
            _carry_out(step, bundle / "rootfs", dist)
        (bundle / "rootfs/etc/resolv.conf").unlink(missing_ok=True)
        _run("umoci", "repack", "--image", image, bundle)
    _run("umoci", "config", "--image", image, *_settings(said))
    _run("umoci", "gc", "--layout", layout)
    return layout


def _look_for(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        message = f"an image is built by root with mmdebstrap and umoci; missing: {', '.join(missing) or 'root'}"
        raise BucketsError(message)


def _run(*command: str | Path) -> None:
    ended = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode != 0:
        message = f"{' '.join(map(str, command))[:200]}: {(ended.stderr or ended.stdout)[-1000:]}"
        raise BucketsError(message)


def _make_base(base: str, root: Path) -> None:
    """Put the system of `debian:SUITE-slim` into an empty folder."""
    suite = base.removeprefix("debian:").removesuffix("-slim")
    slim = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _SLIM]
    _run("mmdebstrap", "--variant=minbase", *slim, suite, root)


def _carry_out(step: Step, root: Path, dist: Path) -> None:
    """Copy a folder of `dist`, or run a command in the image."""
    if step.keyword == "COPY":
        source, target = step.text.split()
        shutil.copytree(dist / Path(source).relative_to("dist"), root / target.lstrip("/"), dirs_exist_ok=True)
        return
    variables = {"PATH": _PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"} | step.variables
    with _lent_places(root, step.caches) as lent:
        pairs = [f"{name}={value}" for name, value in (variables | lent).items()]
        _run("chroot", root, "/usr/bin/env", "-i", *pairs, "/bin/sh", "-c", step.text)


@contextlib.contextmanager
def _lent_places(root: Path, caches: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Lend the image what a command needs and the image does not keep: /proc, /dev, names of hosts, caches, trust.

    Yields:
        Variables that say whom to trust: as this machine does, behind a proxy too.
    """
    shutil.copy2("/etc/resolv.conf", root / "etc/resolv.conf")
    mounts = [("proc", root / "proc", ["-t", "proc"]), ("/dev", root / "dev", ["--bind"])]
    for cache in caches:
        kept = Path("~", *Path(cache).parts[2:]).expanduser()
        kept.mkdir(parents=True, exist_ok=True)
        mounts.append((str(kept), root / cache.lstrip("/"), ["--bind"]))
    lent = root / _LENT
    lent.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, lent)
        for source, target, how in mounts:
            target.mkdir(parents=True, exist_ok=True)
            _run("mount", *how, source, target)
            stack.callback(_run, "umount", target)
        for name, path in _TRUST.items():
            if Path(path).is_file():
                shutil.copy2(path, lent / name)
        yield {
            "PIP_CERT": f"/{_LENT}/PIP_CERT",
            "JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore=/{_LENT}/JAVA_TRUST",
        }


def _settings(said: Containerfile) -> list[str]:
    """Return the options of umoci for what the image says of itself."""
    options = [f"--config.env={name}={value}" for name, value in said.variables.items()]
    options += [f"--config.entrypoint={word}" for word in said.words("ENTRYPOINT")]
    options += [f"--config.cmd={word}" for word in said.words("CMD")]
    label = f"--config.label={said.settings['LABEL']}"
    version = f"--config.label=org.opencontainers.image.version={own_version()}"
    ports = f"--config.exposedports={said.settings['EXPOSE']}"
    place = [f"--config.user={said.settings['USER']}", f"--config.workingdir={said.settings['WORKDIR']}"]
    return [*options, label, version, ports, *place]


if __name__ == "__main__":
    try:
        build()
    except BucketsError as error:
        sys.exit(str(error))
